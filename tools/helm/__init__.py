"""A real Helm, built from its pinned Go module; `python -m tools.helm` prints where it lies."""
