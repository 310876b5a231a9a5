"""Composition roots: one module for each command that starts a program."""
