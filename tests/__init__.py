"""Everything that proves it."""
