"""Spark reader: output and dead-letter topics as DataFrames, and views of their quality."""

from ringfence.spark import quality
from ringfence_client.spark.reader import read_dead_letters, read_output

__all__ = ["quality", "read_dead_letters", "read_output"]
