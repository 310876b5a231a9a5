"""Telemetry: metrics, traces and logs. No decision depends on it."""
