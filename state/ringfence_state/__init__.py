"""Deduplication state: what an address remembers, the strategies, and the stores that hold it."""
