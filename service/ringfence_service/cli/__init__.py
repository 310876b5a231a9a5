"""Command line: a client of the REST API and nothing else."""
