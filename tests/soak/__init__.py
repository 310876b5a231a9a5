"""Soak: load for as long as asked, faults from a seed, and at the end what held.

python -m tests.soak --seconds 600 --seed 7 [--workers 2] [--scope partition]
"""
