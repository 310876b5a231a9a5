"""Screenshots of the console for docs/console: a scene with real records, and a browser."""
