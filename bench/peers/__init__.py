"""Peers: comparable systems, each our own small program on the system's public artifacts."""
