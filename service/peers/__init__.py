"""Peers: how instances find and ask each other."""
