"""Bridge: forwards records from one cluster to another, each once."""
