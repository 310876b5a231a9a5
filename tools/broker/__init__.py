"""A real Apache Kafka for development and tests: embedded, external, or in a container."""
