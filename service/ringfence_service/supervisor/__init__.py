"""Supervisor: starts, queries and restarts the worker processes of an instance."""
