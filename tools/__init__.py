"""What developers run beside the service: a real broker and the demo."""
