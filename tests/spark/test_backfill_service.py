"""A backfill of topics, killed and taken up again, and a service that is seeded with it."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final, NamedTuple
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession
from typer.testing import Result

from ringfence_client.headers import DUPLICATE_ID, NUMBER, PREVIOUS, PUBLISHER, STREAM
from ringfence_pipeline.backfill.run import read_verdicts
from tests.broker.service import REPOSITORY
from tests.broker.workload import PARTITIONS, Record
from tests.broker.world import Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import free_port

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS: Final = 6_000
BATCHES: Final = 4
NAMED: Final = ("ring", "window")
KINDS: Final = (*NAMED, "audit", "sequence", "ordered")
"""A strategy each, of the address that is called so; all hold the whole history."""
SETTINGS: Final = """\
id_cache_size = 100000
[addresses.window]
strategy = "window"
window_size = 100000
window_ms = 1000000000000
[addresses.audit]
strategy = "audit"
audit_depth = 4096
[addresses.sequence]
strategy = "sequence"
[addresses.ordered]
strategy = "ordered"
"""
LEFT_OUT: Final = 7
"""A number that an audit has not seen, and still takes."""
COMMAND: Final = 'from ringfence_pipeline.command import app; app(prog_name="ringfence pipeline")'


class Sent(NamedTuple):
    """A record, and the number that it claims for its partition and its kind."""

    partition: int
    kind: str
    number: int

    @property
    def record(self) -> Record:
        who = f"{self.kind}-{self.partition}".encode()
        headers = [("addr", self.kind.encode())]
        if self.kind in NAMED:
            headers += [(DUPLICATE_ID, b"%b-%d" % (who, self.number))]
        else:
            headers += [(PUBLISHER, who), (NUMBER, b"%d" % self.number)]
        if self.kind == "ordered":
            headers += [(STREAM, b"1"), (PREVIOUS, b"%d" % (self.number - 1))]
        return Record(None, b"v", tuple(headers), 1_700_000_000_000 + 10 * self.number)


def history() -> Iterator[Sent]:
    """Of each kind numbers that go up, and about a quarter that came already."""
    chance, came = Random(1), defaultdict[tuple[int, str], list[int]](list)
    for at in range(RECORDS):
        lane = (chance.randrange(PARTITIONS), KINDS[at % len(KINDS)])
        numbers = came[lane]
        if numbers and chance.random() < 0.25:
            yield Sent(*lane, chance.choice(numbers))
            continue
        number = numbers[-1] + 1 if numbers else 1
        numbers.append(number + 1 if lane[1] == "audit" and number == LEFT_OUT else number)
        yield Sent(*lane, numbers[-1])


def verdicts(sent: list[Sent]) -> Mapping[tuple[int, int], tuple[str, int | None]]:
    """By partition and offset: the verdict, and of copies of an id the offset of the original."""
    said: dict[tuple[int, int], tuple[str, int | None]] = {}
    ends, first = defaultdict[int, int](int), dict[Sent, int]()
    for each in sent:
        offset = ends[each.partition]
        ends[each.partition] += 1
        original = first.setdefault(each, offset)
        told = original if each.kind in NAMED else None
        copy = ("duplicate", told) if original < offset else ("accepted", None)
        said[each.partition, offset] = copy
    return said


def test_a_backfill_that_was_killed_decides_all_and_a_service_seeded_with_it_accepts_no_copy(
    spark: SparkSession, command: Callable[..., Result], broker: Broker, tmp_path: Path
) -> None:
    once, late = list(history()), [Sent(n, "audit", LEFT_OUT) for n in range(PARTITIONS)]
    work = [(each.partition, each.record) for each in (*once, *once, *late)]
    group, manner = f"h{uuid4().hex[:8]}", Manner(service='on_missing_offset = "latest"')
    with World(
        *(broker.client_properties, tmp_path, group), work=work, settings=SETTINGS, manner=manner
    ) as world:
        world.create()
        world.send(len(once))
        port, target = free_port(0), tmp_path / "target"
        service = world.service(port)
        words = ["backfill", "--config", str(tmp_path / "0-state.toml"), "--target", str(target)]
        words += ["--batch-records", str(RECORDS // BATCHES)]
        killed_in_the_second_batch(words, target)
        done = command(*words)
        assert done.exit_code == 0, done.output
        found = read_verdicts(spark, target).selectExpr(
            "partition",
            "offset",
            "verdict",
            "IF(strategy IN ('ring', 'window'), original.offset, NULL)",
        )
        rows = found.collect()
        assert len(rows) == len(once)
        assert {(row[0], row[1]): (row[2], row[3]) for row in rows} == verdicts(once)

        service.start()
        service.wait_ready()
        seeded = command("seed", "--target", str(target), "--url", f"http://127.0.0.1:{port}")
        assert seeded.exit_code == 0, seeded.output
        assert "left out" not in seeded.output
        world.send()
        world.wait_decided()
        # What never came is no copy of anything.
        accepted = [each for rows in world.read(world.output).values() for each in rows]
        assert sorted(each.partition for each in accepted) == list(range(PARTITIONS))
        assert {dict(each.record.headers)[NUMBER] for each in accepted} == {b"%d" % LEFT_OUT}
        assert sum(map(len, world.read(world.letters).values())) == len(once)


def killed_in_the_second_batch(words: list[str], target: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        cwd=REPOSITORY,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:

        def runs_until(condition: Callable[[], bool]) -> None:
            def is_so() -> bool:
                assert running.poll() is None, running.communicate()[0]
                return condition()

            eventually(is_so)

        def count(pattern: str) -> int:
            return len(list(target.glob(pattern)))

        runs_until(lambda: count("checkpoint/commits/[0-9]*") > 0)
        written = count("verdicts/part-*.parquet")
        # Those of a batch that is not done are there as well.
        runs_until(lambda: count("verdicts/part-*.parquet") > written)
        os.killpg(running.pid, signal.SIGKILL)
    assert count("checkpoint/commits/[0-9]*") < BATCHES
