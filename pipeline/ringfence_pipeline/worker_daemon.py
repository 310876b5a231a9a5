"""Daemon of Spark's Python workers, which forks them with the libraries that all of them use.

Spark's own daemon leaves each worker to import pandas and Arrow, which takes half a second of CPU
time and most of a worker's memory. Here the daemon imports them once. Only local sessions use it:
executors of a cluster get the project's code with their tasks, after their daemon has started.
"""

import gc

from pyspark.daemon import manager

import ringfence_pipeline.backfill.processor  # noqa: F401 - for the workers, with all that it imports

if __name__ == "__main__":
    gc.freeze()  # a collection in a worker would copy every page that it visits
    manager()  # type: ignore[no-untyped-call]  # it has no types
