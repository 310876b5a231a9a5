"""Composition roots: each command that starts a program puts its parts together here."""
