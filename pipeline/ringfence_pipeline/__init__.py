"""Spark jobs: Ringfence's topics as tables, backfill of a history, and reconciliation."""
