"""A real Helm, built from its pinned Go module; `python -m tools.helm` prints its path."""
