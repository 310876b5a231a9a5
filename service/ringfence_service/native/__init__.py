"""Compiled fast path: plain records pass from librdkafka to librdkafka without a Python object."""
