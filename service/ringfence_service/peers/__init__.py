"""Peers: how instances find and query each other."""
