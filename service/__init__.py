"""The processor: consume, route, decide, commit; and what starts, watches and stops it."""
