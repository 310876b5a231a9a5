"""Class-data archive of Spark's classes, with which a Spark session starts in half of the time.

It is written once for an installed pyspark, by a session that runs some queries, stops and dumps
its loaded classes. Java ignores an archive of other jars or of another Java.
"""

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.jars import RUN_FOLDER

_SESSION: Final = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
pairs = session.range(1_000).selectExpr("id % 7 as key", "cast(id as string) as value")
pairs.groupBy("key").count().write.parquet(sys.argv[1])
session.read.parquet(sys.argv[1]).join(pairs, "key").orderBy("value").collect()
session.stop()
"""
# Jobs of a few records: code that is compiled well, and collectors of garbage on threads of their
# own, cost more than they save.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# So does compiling queries.
INTERPRETED: Final = (
    "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
)
_TIMEOUT_S: Final = 300.0


def options() -> str:
    """Return what makes Java start and answer quickly, for the variable SPARK_SUBMIT_OPTS."""
    return f"{java_options()} {INTERPRETED}"


def java_options() -> str:
    """Return the part of it that is not Spark's own, which executors may be given."""
    path = _path()
    # Without a log of its own Java would print on standard output why it ignores an archive.
    return f"{QUICK} -Xlog:disable -XX:SharedArchiveFile={path}" if path.exists() else QUICK


def main() -> None:
    """Write the archive unless it exists; raise ToolError if Spark does not start."""
    path = _path()
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        dump = Path(folder) / path.name
        done = subprocess.run(
            [sys.executable, "-c", _SESSION, str(Path(folder) / "table")],
            env={
                **os.environ,
                "SPARK_SUBMIT_OPTS": f"{QUICK} -Xlog:disable -XX:ArchiveClassesAtExit={dump}",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,  # which waits for Java too, as it has the same pipes
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise ToolError(f"Spark does not start here:\n{done.stderr[-2_000:]}")
        dump.rename(path)


def _path() -> Path:
    return RUN_FOLDER / f"spark-{version('pyspark')}.jsa"


if __name__ == "__main__":
    main()
