"""A real promtool, built from Prometheus' pinned Go module, for tests of the alert rules."""
