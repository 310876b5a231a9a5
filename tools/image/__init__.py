"""The image, built from the Dockerfile without an engine, and what is in it."""
