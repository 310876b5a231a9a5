"""Peers: comparable systems, each a small program of ours on the system's public artifacts."""
