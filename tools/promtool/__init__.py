"""A real promtool, built from Prometheus' pinned Go module, to test the alert rules with."""
