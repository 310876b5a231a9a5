"""Deduplication: the rules that decide what becomes of one record. No I/O, no clock, no log."""
