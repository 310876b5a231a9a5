"""Code of the client library: header names, the publisher, and the Spark reader."""
