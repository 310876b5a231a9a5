"""The image, built from the Dockerfile and run without an engine."""
