"""Grafana dashboard, generated from a table of panels by `python -m tools.dashboard`."""
