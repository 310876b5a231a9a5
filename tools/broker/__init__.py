"""A real Apache Kafka for development and tests: embedded, one's own, or in a container."""
