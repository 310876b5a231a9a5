"""Backfill: decides long histories on Spark as the service would have."""
