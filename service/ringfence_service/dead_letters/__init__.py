"""Dead letters: browsing them, and redriving them as jobs."""
