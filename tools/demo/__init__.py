"""Demo: real flights go through a real broker and the service, which is killed half-way."""
