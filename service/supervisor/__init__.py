"""Supervisor: worker processes, what they are asked, and when they are restarted."""
