"""Kafka: clients, administration, topics and errors. All access to a broker goes through it."""
