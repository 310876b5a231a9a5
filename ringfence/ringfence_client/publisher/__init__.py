"""Publisher: a Kafka producer whose resends never become duplicates."""
