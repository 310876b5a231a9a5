"""What an attacker tries first, each attempt as a test: those that never worked included."""
