"""Deduplication strategies: one small pure file for each."""
