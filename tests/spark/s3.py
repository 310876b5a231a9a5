"""A store of S3 on this machine, and a driver whose requests to it can be stopped.

The server is S3Proxy on a folder: each object is a file of it, and each bucket a folder. It lists
what was written at once, and replaces or creates an object as a whole. Requests pass through a gate
that a test can shut for some names, so that a driver is killed at a known step.

The driver is this module, run as a program: it does several jobs at once, each in a session of its
own, and writes their answers.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.backfill.accepted import AcceptedTable
from ringfence_pipeline.backfill.batch import backfill_at_once
from ringfence_pipeline.backfill.run import BackfillSource, BatchLimits, backfill, read_verdicts
from ringfence_pipeline.reconcile.analyze import AnalyzeOptions
from ringfence_pipeline.reconcile.run import ClusterTopics, LakeTables, reconcile
from ringfence_pipeline.session import SessionOptions, open_session
from ringfence_pipeline.tables import RunOptions, TableSource, read_table, update_tables
from ringfence_service.config.load import load
from tests.spark.jars import JARS, SERVER, for_s3
from tests.spark.judging import named
from tests.support.waiting import LIMIT_S, eventually
from tools.broker.config import HOST, free_port
from tools.jars import java_command
from tools.source_roots import python_path

REPOSITORY: Final = Path(__file__).parents[2]
BUCKET: Final = "lake"
_PROPERTIES: Final = """
s3proxy.endpoint=http://{host}:{port}
s3proxy.authorization=aws-v4
s3proxy.identity=someone
s3proxy.credential=secret
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={folder}
"""
_CHUNK_BYTES: Final = 1 << 16
Job = tuple[str, Mapping[str, object]]
"""The name of a job, and its arguments."""


class Gate:
    """A port that leads to another one, and holds up requests that write certain objects."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((HOST, free_port(0)))
        self.port: int = self._listener.getsockname()[1]
        self._shut: tuple[str, ...] = ()
        self.held: set[str] = set()
        """The expressions of which a request is held up."""
        self._over = Event()
        Thread(target=self._accept, daemon=True).start()

    def shut(self, *names: str) -> None:
        """Hold up every request from now on that writes an object whose name is like one of these.

        Requests that are held up already are given up.
        """
        self._over.set()
        self._over = Event()
        self._shut, self.held = names, set()

    def close(self) -> None:
        """Accept nothing any more."""
        self.shut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._target))
                for pump in (self._requests, self._answers):
                    Thread(target=_guarded, args=(pump, client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        # A request begins a chunk, since its client has waited for the answer to the one before.
        while chunk := client.recv(_CHUNK_BYTES):
            line = chunk.partition(b"\r\n")[0].decode("latin-1")
            for name in self._shut:
                if re.match(rf"PUT /{BUCKET}/{name}", line):
                    over = self._over
                    self.held.add(name)
                    over.wait()
                    return
            server.sendall(chunk)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        while chunk := server.recv(_CHUNK_BYTES):
            client.sendall(chunk)


def _guarded(
    pump: Callable[[socket.socket, socket.socket], None],
    client: socket.socket,
    server: socket.socket,
) -> None:
    with suppress(OSError):  # the other end is gone
        pump(client, server)
    for end in (client, server):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


class Store:
    """A running server behind its gate."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        """With a file for each object."""
        self.gate = Gate(port)

    @property
    def settings(self) -> Mapping[str, str]:
        """What a session needs to use it."""
        return {
            "spark.jars": ",".join(map(str, for_s3())),
            "spark.hadoop.fs.s3a.endpoint": f"http://{HOST}:{self.gate.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "someone",
            "spark.hadoop.fs.s3a.secret.key": "secret",
            "spark.checkpoint.dir": f"s3a://{BUCKET}/kept",
        }


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Run a server on a folder; end it on exit."""
    port, jar = free_port(0), JARS.fetched() / SERVER
    objects = folder / "objects"
    (objects / BUCKET).mkdir(parents=True)
    properties = folder / "s3proxy.properties"
    properties.write_text(_PROPERTIES.format(host=HOST, port=port, folder=objects))
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    with (folder / "s3proxy.log").open("w") as log:
        server = subprocess.Popen(
            [java_command(), *quick, "-jar", str(jar), "--properties", str(properties)],
            stdout=log,
            stderr=log,
        )
    store = None
    try:

        def is_there() -> bool:
            assert server.poll() is None, (folder / "s3proxy.log").read_text()[-2_000:]
            with suppress(OSError), socket.create_connection((HOST, port)):
                return True
            return False

        eventually(is_there)
        store = Store(objects / BUCKET, port)
        yield store
    finally:
        if store is not None:
            store.gate.close()
        server.kill()
        server.wait()


class Driver:
    """A process with a session that does jobs; a context manager that ends it.

    The jobs of one phase are done at once, and the next phase follows.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], *phases: Sequence[Job]) -> None:
        folder.mkdir()
        self._answers, self._log = folder / "answers.json", folder / "log"
        given = json.dumps([dict(settings), phases, str(self._answers)])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.s3", given],
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": python_path(REPOSITORY)},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill Python and Java at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def check(self) -> None:
        """Fail if it has ended."""
        assert self._process.poll() is None, self.tail()

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-5_000:]

    def answers(self) -> Sequence[Any]:
        """Wait for its end; return what the jobs answered, in their order."""
        assert self._process.wait(LIMIT_S) == 0, self.tail()
        answers: Sequence[Any] = json.loads(self._answers.read_text())
        return answers


def whole(rows: DataFrame, *left_out: str) -> list[str]:
    """Return all rows as texts, in an order of their own."""
    columns = [name for name in rows.columns if name not in left_out]
    texts = rows.select(sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"}))
    return sorted(row[0] for row in texts.collect())


def tabulate(
    spark: SparkSession, servers: str, topics: Mapping[str, Sequence[str]], target: str, most: int
) -> Mapping[str, list[str]]:
    """Bring topics into tables; return the rows of each table."""
    source = TableSource(servers, {}, topics)
    update_tables(spark, source, target, options=RunOptions(batch_records_max=most))
    return {name: whole(read_table(spark, target, name)) for name in topics}


def decide(spark: SparkSession, config: str, table: str, target: str, most: int) -> list[str]:
    """Backfill a table in steps; return its verdicts."""
    source = BackfillSource("", {}, (), table)
    backfill(spark, load(Path(config), {}), source, target, limits=BatchLimits(most))
    return _verdicts(spark, target)


def decide_at_once(
    spark: SparkSession, config: str, table: str, target: str, accepted: str
) -> list[list[str]]:
    """Backfill a table in one job; return its verdicts and the accepted rows."""
    source = BackfillSource("", {}, (), table)
    backfill_at_once(spark, load(Path(config), {}), source, target)
    AcceptedTable.of(spark, accepted, target).write(source)
    return [_verdicts(spark, target), whole(spark.read.format("delta").load(accepted))]


def prove(
    spark: SparkSession, config: str, servers: str, tables: str, findings: str
) -> Mapping[str, list[str]]:
    """Reconcile with tables, and append to a history; return what is in it, by kind."""
    cluster, lake = ClusterTopics(servers, {}), LakeTables(tables, findings)
    result = reconcile(spark, load(Path(config), {}), cluster, AnalyzeOptions(), lake)
    kept = spark.read.format("delta").load(f"{findings}/violations").count()
    assert kept == sum(result.faults_total.values())
    return {kind: sorted(places) for kind, places in named(result).items()}


def copy(spark: SparkSession, table: str, to: str) -> None:
    """Copy a table of Parquet files into a Delta table."""
    spark.read.parquet(table).write.format("delta").save(to)


def _verdicts(spark: SparkSession, target: str) -> list[str]:
    # How late an expired record was depends on the run.
    return whole(read_verdicts(spark, target), "cause")


JOBS: Final[Mapping[str, Callable[..., Any]]] = {
    each.__name__: each for each in (tabulate, decide, decide_at_once, prove, copy)
}


def main(
    settings: Mapping[str, str], phases: Sequence[Sequence[tuple[str, Any]]], answers: str
) -> None:
    """Do the jobs of one phase at once, and phase after phase."""
    quick = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    conf = tuple(f"{name}={value}" for name, value in {**settings, **quick}.items())
    spark = open_session(SessionOptions(master="local[2]", conf=conf))

    def do(job: tuple[str, Any]) -> object:
        name, given = job
        return JOBS[name](spark.newSession(), **given)

    found: list[object] = []
    for jobs in phases:
        with ThreadPoolExecutor(len(jobs)) as threads:
            found += threads.map(do, jobs)
    Path(answers).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
