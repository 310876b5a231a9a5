"""Handlers: how the loop answers each query."""
