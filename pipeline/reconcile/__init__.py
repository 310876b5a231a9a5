"""Reconcile: the proof, from the topics alone, that every record has had its fate."""
