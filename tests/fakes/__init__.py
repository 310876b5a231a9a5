"""Honest in-memory fakes, each held to the contract suite that the real thing passes."""
