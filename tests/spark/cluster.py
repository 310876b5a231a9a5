"""A cluster of Spark processes, and the driver that tests have work for them and kill.

The driver is this module, run as a program. It opens a session with two executors, which are
processes with working directories of their own. Their Python has only what the documentation asks
for, and gets the project's code from the driver, as zips. Jobs are begun and answered through
files; while one runs, the driver still says what its executors do.
"""

import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple, Self, cast

import pyspark
from pyspark.sql import SparkSession

from ringfence_pipeline.backfill import run
from ringfence_pipeline.session import SessionOptions, open_session
from ringfence_pipeline.tables import RunOptions, TableSource, read_table, update_tables
from ringfence_service.config.load import load
from tests.spark.judging import Case, judged, named
from tests.spark.ledger import Ledger
from tests.support.waiting import eventually
from tools import spark_archive
from tools.source_roots import python_path

REPOSITORY: Final = Path(__file__).parents[2]
MASTER: Final = "local-cluster[2,1,1024]"
TASKS: Final = 2
NEEDED: Final = ("pyspark", "py4j", "numpy", "pandas", "pyarrow", "google", "dateutil", "pytz")
"""What `requirements/spark.txt` installs, and what these need."""
FILES: Final = ("six.py", "numpy.libs", "tzdata")
BACKEND: Final = "CoarseGrainedExecutorBackend"


def bare_python(folder: Path) -> Path:
    """Return a Python that has nothing but what executors need."""
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in NEEDED:
        spec = find_spec(name)
        assert spec is not None
        (installed,) = spec.submodule_search_locations or ("",)
        (site / name).symlink_to(installed)
    for name in FILES:
        installed = str(Path(installed).with_name(name))
        if Path(installed).exists():
            (site / name).symlink_to(installed)
    return folder / "bin" / "python"


class Executor(NamedTuple):
    """What the driver says of one."""

    name: str
    is_alive: bool
    tasks: int
    """The tasks that it has now, or had when it died."""


class Batch(NamedTuple):
    """The last batch of a query, by its checkpoint."""

    number: int
    """Of the batch that was planned last; -1 if none was."""
    is_done: bool
    has_saved: bool
    """Whether a task has saved its part of the state."""

    @property
    def is_under_way(self) -> bool:
        """Whether it is not done yet, and not the first, whose state has nothing before it."""
        return self.number > 0 and not self.is_done

    @property
    def is_partly_saved(self) -> bool:
        """Whether it is under way, with a part of the state that the next run has to drop."""
        return self.is_under_way and self.has_saved


def last_batch(checkpoint: Path) -> Batch:
    """Return the last batch that was planned."""
    planned, done = (
        max((int(each.name) for each in (checkpoint / name).glob("[0-9]*")), default=-1)
        for name in ("offsets", "commits")
    )
    saved = any((checkpoint / "state").glob(f"0/*/{planned + 1}.*"))
    return Batch(planned, planned == done, saved)


class Driver:
    """A driver with its cluster; a context manager that ends both."""

    def __init__(self, folder: Path, code: Sequence[Path]) -> None:
        self._folder = folder
        folder.mkdir()
        self._home = folder / "home"  # the executors' working directories are in it
        self._home.mkdir()
        for each in Path(pyspark.__file__).parent.iterdir():
            (self._home / each.name).symlink_to(each)
        self._jobs = 0
        python = bare_python(folder / "bare")
        words = [str(folder), *map(str, code)]
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster", *words],
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(REPOSITORY),
                    "PYSPARK_PYTHON": str(python),
                    "SPARK_HOME": str(self._home),
                    "SPARK_SUBMIT_OPTS": spark_archive.options(),
                },
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-5_000:]

    def begin(self, job: str, **given: object) -> "Job":
        """Begin a job."""
        self._jobs += 1
        answer = self._folder / f"{self._jobs}.json"
        assert self._process.stdin is not None
        print(json.dumps([job, given, str(answer)]), file=self._process.stdin, flush=True)
        return Job(self, answer)

    def check(self) -> None:
        """Fail if it has ended."""
        assert self._process.poll() is None, self.tail()

    def kill_executor(self, job: "Job", is_in_batch: Callable[[], bool]) -> bool:
        """Kill an executor while it has a task of a batch; return whether the job went on."""
        killed = ""

        def is_killed() -> bool:
            nonlocal killed
            # Looking through all processes takes longer than to look at a checkpoint.
            for killed, process in self._backends() if is_in_batch() else ():
                # A process that is stopped ends no task while the driver is asked.
                with _stopped([process]):
                    if self._executor(killed).tasks and is_in_batch():
                        os.kill(process, signal.SIGKILL)
                        return True
            return False

        # A task whose end was still on its way to the driver is not lost with its executor.
        while not killed or not self._executor(killed).tasks:
            if not job.is_caught(is_killed):
                return False
            eventually(lambda: not self._executor(killed).is_alive, self)
        return True

    def kept_frames(self) -> set[Path]:
        """Return the parts of results that reconciliations have kept."""
        return set((self._folder / "checkpoint").glob("*/rdd-*/part-*"))

    def kill_in_batch(self, job: "Job", is_in_batch: Callable[[], bool]) -> bool:
        """Kill the driver and its cluster in a batch; return False if the job ended before."""

        def is_killed() -> bool:
            if not is_in_batch():
                return False
            with _stopped(self._processes()):
                if is_in_batch():
                    self.kill()
                    return True
            return False

        return job.is_caught(is_killed)

    def kill(self) -> None:
        """Kill all processes at once."""
        for number in self._processes():
            _send(number, signal.SIGKILL)
        self._process.communicate()

    def _executor(self, name: str) -> Executor:
        known = {each[0]: Executor(*each) for each in self.begin("executors").answer()}
        return known.get(name, Executor(name, is_alive=True, tasks=0))  # it has just begun

    def _processes(self) -> list[int]:
        """Return the processes of the driver's session: its JVM, the executors, their Pythons."""
        numbers = [int(each.name) for each in Path("/proc").glob("[0-9]*")]
        return [number for number in numbers if _state(number)[3:4] == [str(self._process.pid)]]

    def _backends(self) -> Iterator[tuple[str, int]]:
        """Yield the names of the executors, and their processes."""
        for number in self._processes():
            words = _read(number, "cmdline").split("\0")
            if any(word.endswith(BACKEND) for word in words):
                yield words[words.index("--executor-id") + 1], number


class Job(NamedTuple):
    """A job of a driver, and the file of its answer."""

    driver: Driver
    file: Path

    def is_over(self) -> bool:
        if self.file.exists():
            return True
        self.driver.check()
        return False

    def answer(self) -> Any:
        """Wait for its end; return its answer."""
        eventually(self.is_over, self.driver)
        told = json.loads(self.file.read_text())
        assert "error" not in told, f"{told}\n{self.driver.tail()}"
        return told["answer"]

    def is_caught(self, true: Callable[[], bool]) -> bool:
        """Wait until it is so, or the job is over; return whether it was so.

        A batch of a few records saves its state and is done within less time than others wait
        between two questions.
        """
        caught = False

        def is_decided() -> bool:
            nonlocal caught
            over = self.is_over()
            caught = true()
            return caught or over

        eventually(is_decided, self.driver, pause_max_s=0.01)
        return caught


@contextmanager
def _stopped(processes: Iterable[int]) -> Iterator[None]:
    """Stop processes, and let those that are left go on afterwards."""
    processes = list(processes)
    for number in processes:
        _send(number, signal.SIGSTOP)
    try:
        eventually(lambda: all(_state(number)[:1] in (["T"], ["Z"], []) for number in processes))
        yield
    finally:
        for number in processes:
            _send(number, signal.SIGCONT)


def _send(process: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _state(process: int) -> list[str]:
    """Return the state of a process, its parent, its group, its session; nothing if it is gone."""
    return _read(process, "stat").rpartition(") ")[2].split()[:4]


def _read(process: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{process}/{name}").read_text()
    return ""


def serve(spark: SparkSession, lines: Iterable[str]) -> None:
    """Answer one line after another; a job does not hold up the next line."""

    def answer(job: str, given: Mapping[str, Any], file: str) -> None:
        told: dict[str, Any]
        try:
            told = {"answer": JOBS[job](spark, **given)}
        except Exception as error:  # noqa: BLE001 - the test shows it
            told = {"error": repr(error)}
        draft = Path(f"{file}.new")
        draft.write_text(json.dumps(told))
        draft.rename(file)

    for line in lines:
        Thread(target=answer, args=json.loads(line), daemon=True).start()


def executors(spark: SparkSession) -> Sequence[Executor]:
    """Return all executors, dead ones too."""
    context = cast("Any", spark)._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    found = context.statusStore().executorList(False)  # noqa: FBT003 - not only active ones
    return [
        Executor(str(each.id()), each.isActive(), each.activeTasks())
        for each in (found.apply(at) for at in range(found.size()))
    ]


def decide(spark: SparkSession, config: str, table: str, target: str, batch_records: int) -> None:
    """Backfill a table."""
    source = run.BackfillSource("", {}, (), table, "parquet")
    limits = run.BatchLimits(batch_records, TASKS)
    run.backfill(spark, load(Path(config), {}), source, target, limits=limits)


def decided(spark: SparkSession, target: str) -> list[list[Any]]:
    """Return place, verdict and original of each row."""
    rows = run.read_verdicts(spark, target).collect()
    return [
        [row["topic"], row["partition"], row["offset"], row["verdict"], row["original"]]
        for row in rows
    ]


def tabulate(
    spark: SparkSession, servers: str, topic: str, target: str, batch_records: int
) -> list[str]:
    """Bring a topic into a table; return the ids in it."""
    source = TableSource(servers, {}, {"messages": [topic]})
    update_tables(spark, source, target, options=RunOptions(batch_records_max=batch_records))
    return [
        bytes(row["duplicate_id"]).decode()
        for row in read_table(spark, target, "messages").collect()
    ]


def prove(spark: SparkSession, records: int, each: int) -> list[dict[str, list[str]]]:
    """Reconcile a ledger with faults; return these by kind, and what was found."""
    ledger = Ledger("spoilt", records=records, ring=200, partitions=2, seed=2)
    planted = ledger.spoil(each)
    found = named(judged(spark, Case(ledger)))
    return [{kind: sorted(places) for kind, places in of.items()} for of in (planted, found)]


JOBS: Final[Mapping[str, Callable[..., Any]]] = {
    each.__name__: each for each in (executors, decide, tabulate, prove)
}


def main(folder: str, code: Sequence[str]) -> None:
    """Open the session and answer."""
    settings = {
        "spark.executorEnv.PYTHONPATH": "",
        "spark.executor.extraJavaOptions": spark_archive.java_options(),
        "spark.checkpoint.dir": f"{folder}/checkpoint",
    }
    conf = tuple(f"{name}={value}" for name, value in settings.items())
    spark = open_session(SessionOptions(master=MASTER, conf=conf))
    for each in code:
        spark.sparkContext.addPyFile(each)
    serve(spark, sys.stdin)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
