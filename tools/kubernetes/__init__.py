"""A Kubernetes for tests without containers: a real control plane, and pods in name alone."""
