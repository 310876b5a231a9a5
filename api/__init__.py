"""The admin REST API: the service seen and asked from outside."""
