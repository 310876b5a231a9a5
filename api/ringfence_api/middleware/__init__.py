"""Middleware: processing of every request before and after its handler."""
