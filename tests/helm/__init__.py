"""The chart: what a real Helm renders of it, judged by the real schemas."""
