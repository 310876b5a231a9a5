"""The real loop on a fake log, seeded: whatever goes wrong, the invariants hold."""
