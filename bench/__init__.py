"""Benchmarks of Ringfence against a pass-through and against comparable systems, on one broker."""
