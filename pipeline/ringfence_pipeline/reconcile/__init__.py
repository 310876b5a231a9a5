"""Reconciliation: proves from the topics alone that every record had exactly one fate."""
