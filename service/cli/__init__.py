"""Command line: a client of the REST API that imports nothing of the service's internals."""
