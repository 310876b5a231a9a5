"""ID import: ids that a broker has seen before become ids that the service remembers."""
