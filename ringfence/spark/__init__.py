"""Spark reader: output and dead-letter topics as DataFrames."""

from ringfence.spark.reader import read_dead_letters, read_output

__all__ = ["read_dead_letters", "read_output"]
