"""Spark session: the only module that creates one.

A local session runs in this process's own JVM on all its cores, listens on loopback only, has no
web UI, logs only fatal errors, and downloads nothing: jars are given by path. `--master` and
`--conf` override these settings. A session of `spark-submit` keeps everything that was given there,
jars included: only settings that results depend on are set, and Delta's extension is added to
those that the cluster has. In both, times are UTC and written so that readers other than Spark
understand them.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.jars import connector_jars

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

_RESULTS_DEPEND_ON: Final = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_DEFAULTS: Final = {
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # PySpark would look up and send the line of Python that calls each function on a column.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A batch writes few files for each day and address, and many small ones are put together.
    "spark.databricks.delta.optimizeWrite.enabled": "true",
    "spark.databricks.delta.autoCompact.enabled": "true",
}
_CLASSES: Final = {
    "functions": "org.apache.spark.sql.functions",
    "org.apache.spark.sql.functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
"""Classes that PySpark uses for each function on a column, by the names that it has for them."""
_JARS: Final = "spark.jars"
_EXTENSIONS: Final = "spark.sql.extensions"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_NO_TABLES: Final = Path(tempfile.gettempdir(), "ringfence-no-tables")
"""Folder for tables without a path. There are none, but Spark creates the folder."""


_JAVA_OPTIONS: Final = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
_JVM_EXIT_S: Final = 10.0
"""How long the end of a command waits for its JVM, which may never end (see `close_session`).

The session is stopped by then, so a JVM that is killed loses no work.
"""


class SessionOptions(NamedTuple):
    """What the command line says about a session of this process."""

    jars: Path | None = None
    """The folder of the jars; None for the checkout's own."""
    master: str | None = None
    conf: tuple[str, ...] = ()
    """Settings of Spark, each as `name=value`."""


def is_submitted(environ: Mapping[str, str]) -> bool:
    """Return whether `spark-submit` started this process, on a cluster or locally."""
    return "PYSPARK_GATEWAY_PORT" in environ


@contextmanager
def session_for(options: SessionOptions) -> Iterator[SparkSession]:
    """Open a session for a `with` block, and close it after the block; raise as `open_session`."""
    session = open_session(options)
    try:
        yield session
    finally:
        close_session(session)


def open_session(options: SessionOptions = SessionOptions()) -> SparkSession:  # noqa: B008 - a value
    """Open a session, or take that of `spark-submit`; the caller stops it.

    Raises PipelineError for options that cannot be used, for missing jars, and where Python has no
    JVM of Spark.
    """
    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise PipelineError(
            "this is Spark Connect, and the jobs need the JVM of Spark's driver: use spark-submit, "
            "or unset SPARK_REMOTE",
            exit_code=USAGE,
        )
    # Python workers use this environment unless the user names another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_submitted(os.environ):
        settings = submitted_settings(options, _given_to_submit())
    else:
        settings = local_settings(options)
    builder = SparkSession.builder.appName("ringfence")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    _remember_classes(session)
    return session


def close_session(session: SparkSession) -> None:
    """Stop a session, and the JVM that this process started for it.

    The JVM is killed where it does not end by itself: the destructors of RocksDB may wait for its
    compaction thread, and that thread for the JVM that calls the destructors.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing else has the process
    session.stop()
    jvm: subprocess.Popen[bytes] | None = gateway.proc  # type: ignore[union-attr]
    if jvm is None or jvm.stdin is None:  # that of `spark-submit`
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - another session has its own
    gateway.shutdown()  # type: ignore[union-attr]
    with suppress(OSError):
        jvm.stdin.close()  # Spark ends at the end of its input
    try:
        jvm.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def submitted_settings(options: SessionOptions, given: Mapping[str, str]) -> dict[str, str]:
    """Return what to set in a session of `spark-submit` that was given these settings."""
    if options.master is not None or options.conf:
        sentence = "give --master and --conf to spark-submit, which started this command"
        raise PipelineError(sentence, exit_code=USAGE)
    missing = {name: value for name, value in _DEFAULTS.items() if name not in given}
    return {
        **missing,
        **_RESULTS_DEPEND_ON,
        _EXTENSIONS: _added(given, _EXTENSIONS, _DELTA_EXTENSION),
    }


def local_settings(options: SessionOptions) -> dict[str, str]:
    """Return the settings of a session of this process."""
    given = _pairs(options.conf)
    cores = str(len(os.sched_getaffinity(0)))
    settings = {
        **_DEFAULTS,
        "spark.master": options.master or "local[*]",
        "spark.sql.warehouse.dir": _NO_TABLES.as_uri(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": _java_options(given, os.environ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": cores,
        # The default of 50 tasks to list a table's files costs more than reading all our files.
        "spark.databricks.delta.snapshotPartitions": cores,
        # VACUUM lists the folders of a table in this many tasks; the default is 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        **given,
        **_RESULTS_DEPEND_ON,
    }
    if settings["spark.master"].partition("[")[0] == "local":
        settings.setdefault("spark.python.daemon.module", "ringfence_pipeline.worker_daemon")
    jars = map(str, connector_jars(options.jars))
    return settings | {
        _EXTENSIONS: _added(given, _EXTENSIONS, _DELTA_EXTENSION),
        _JARS: _added(given, _JARS, *jars),
    }


def _java_options(given: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the options of the JVM.

    The serial collector keeps a heap of the default size small, where G1 lets it grow to a multiple
    of what is used. For other sizes the JVM chooses, and Java refuses two choices.
    """
    is_chosen = any("GC" in environ.get(name, "") for name in _JAVA_OPTIONS)
    is_default = "spark.driver.memory" not in given
    collector = " -XX:+UseSerialGC" if is_default and not is_chosen else ""
    return f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}{collector}"


def _added(given: Mapping[str, str], name: str, *entries: str) -> str:
    """Return a setting that is a list, with these entries added where they are missing."""
    listed = [each for each in given.get(name, "").split(",") if each]
    return ",".join(dict.fromkeys([*listed, *entries]))


def _remember_classes(session: SparkSession) -> None:
    """Have PySpark ask the JVM for its classes once.

    It would ask at each use. The JVM looks for a short name in every jar and imported package.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - PySpark itself looks here
    for name, qualified in _CLASSES.items():
        setattr(jvm, name, getattr(jvm, qualified))


def _pairs(conf: tuple[str, ...]) -> dict[str, str]:
    pairs = [each.partition("=") for each in conf]
    wrong = [name for name, separator, _ in pairs if not (separator and name.startswith("spark."))]
    if wrong:
        raise PipelineError(f"--conf {wrong[0]}: write it as spark.name=value", exit_code=USAGE)
    return {name: value for name, _, value in pairs}


def _given_to_submit() -> dict[str, str]:
    """Return the settings of `spark-submit`, whose JVM runs before there is a context."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to it; `SparkConf` alone does not
    return dict(SparkConf().getAll())
