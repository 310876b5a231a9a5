"""Spark reader: output and dead-letter topics as DataFrames, and views of their quality."""
