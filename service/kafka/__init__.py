"""Kafka: clients, administration, topics and errors; what talks to a broker goes through it."""
