"""Processor: the loop that polls, decides, commits and applies."""
