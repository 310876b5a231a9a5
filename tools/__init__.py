"""Developer tools: a real broker, the demo, test runs, and the builds that tests need."""
