"""Redrives: dead letters sent on their way again, as jobs that survive whatever happens."""
