"""Histories: what was sent and polled meanwhile, and what Jepsen checks of a Kafka on it."""
