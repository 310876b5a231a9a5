"""Without numpy, which comes with pyspark, nothing of this folder is collected."""

from importlib.util import find_spec

if find_spec("numpy") is None:
    collect_ignore_glob = ["test_*.py"]
