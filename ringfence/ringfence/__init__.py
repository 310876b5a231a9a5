"""Ringfence's client library: header names, the publisher, and the Spark reader.

These modules are the names that applications import. The code is the package `ringfence_client`,
which the server imports too: it starts although a folder named `ringfence` is on the path first.
"""
