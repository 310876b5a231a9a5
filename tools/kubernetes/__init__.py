"""Kubernetes for tests without containers: a real control plane, and simulated nodes and pods."""
