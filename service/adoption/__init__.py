"""Adoption: what a live topic holds becomes known before Ringfence decides its first record.

The ids go to the running service as an import: so it is the owner of each partition that writes
them, in transactions of its own, and there is one way only by which a state changes.
"""
