"""Container image, built from the Dockerfile without an engine, and its contents."""
