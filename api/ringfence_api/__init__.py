"""The admin REST API: how clients observe and control the service."""
