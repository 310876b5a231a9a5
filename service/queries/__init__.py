"""Queries: what the API may ask of a loop, and how the answers of several loops merge."""
