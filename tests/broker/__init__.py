"""Against a real Kafka."""
