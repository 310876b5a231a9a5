"""The Grafana dashboard, made from a table of panels: `python -m tools.dashboard` writes it."""
