"""The demo: real flights through a real broker and the service, which is killed half-way."""
