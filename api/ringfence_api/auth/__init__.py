"""Authentication and authorization: who sends a request, and what its roles permit."""
