"""Queries: the queries of the API to the loops, and how the answers of several loops merge."""
