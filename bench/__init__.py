"""Benchmarks: Ringfence beside a floor that does nothing and beside its peers, on one broker."""
