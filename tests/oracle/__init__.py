"""Oracles: strategies compared with the genuine classes of others, and with dumb models."""
