"""A file system that is not the local one, though its files are on this machine's disk."""

from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pyspark.sql import SparkSession


def lake(spark: SparkSession, folder: Path) -> str:
    """Return a URI of the folder in Hadoop's ViewFileSystem, which opens no path of the disk."""
    name = f"lake-{uuid4().hex}"
    hadoop = cast("Any", spark._jsc).hadoopConfiguration()
    hadoop.set(f"fs.viewfs.mounttable.{name}.link./data", folder.as_uri())
    return f"viewfs://{name}/data"
