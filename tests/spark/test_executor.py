"""What an executor of Spark has to have: beside this project only what Spark itself needs."""

import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
from confluent_kafka import murmur2
from pyspark import cloudpickle

from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.processor import BackfillProcessor
from ringfence.headers import DUPLICATE_ID
from service.config.model import RouteSettings
from service.kafka.murmur2 import murmur2 as without_client
from tests.spark.cluster import bare_python

pytestmark = pytest.mark.spark

PROGRAM: Final = """
import json, pickle, sys

sys.path.append(sys.argv[1])

class Handle(dict):
    def getMapState(self, *names):
        return self
    getValue, updateValue, removeKey = dict.get, dict.__setitem__, dict.__delitem__

processor, frames = pickle.load(sys.stdin.buffer)
processor.init(Handle())
found = [row for frame in frames for each in processor.handleInputRows((0,), iter([frame]), None)
    for row in each[["offset", "address", "verdict", "original"]].itertuples(index=False)]
import ringfence.spark
print(json.dumps([sorted(map(list, found)), processor._inputs.number("orders", frames, ())]))
"""


def frame(first: int, ids: list[bytes | None]) -> pd.DataFrame:
    """Records of one partition, of which one without an id has its headers."""
    count = len(ids)
    columns: dict[str, list[Any]] = {
        "topic": ["orders"] * count,
        "partition": [0] * count,
        "offset": list(range(first, first + count)),
        "timestamp_ms": [1_000] * count,
        "now_ms": [2_000] * count,
        "id": list(ids),
        "named": [None] * count,
        "key": [None] * count,
        "value": [None] * count,
        "headers": [None if each else [{"key": DUPLICATE_ID, "value": b"3"}] for each in ids],
        "decider_topic": ["orders"] * count,
        "decider_partition": [0] * count,
    }
    return pd.DataFrame(columns)


@pytest.mark.parametrize("strategy", ["ring", "window", "audit"])
def test_a_processor_decides_where_nothing_but_the_needs_of_spark_is_installed(
    strategy: str, tmp_path: Path
) -> None:
    inputs = BackfillInputs(
        routes=(RouteSettings(name="all", inputs=("^ord.*",), scope="partition"),),
        patterns={"#": {"strategy": strategy}},
        group_id="g",
        by_address_partitions=12,
        cache_memory_bytes=1 << 20,
        topics=("orders",),
    )
    frames = [frame(0, [b"%d" % number for number in range(40)]), frame(40, [b"7", None, b"new"])]
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    ran = subprocess.run(
        [bare_python(tmp_path), "-I", "-c", PROGRAM, Path(__file__).parents[2]],
        input=dumps((BackfillProcessor(inputs), frames)),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    rows, number = json.loads(ran.stdout)
    accepted = {offset for offset, _, verdict, _ in rows if verdict == "accepted"}
    if strategy != "audit":  # which goes by numbers
        assert accepted == {*range(40), 42}
        assert {(row[0], row[3]) for row in rows if row[0] in {40, 41}} == {
            (40, "orders-0@7"),
            (41, "orders-0@3"),
        }
    assert len(rows) == 43
    assert number == murmur2(b"orders", 12)


def test_the_inputs_that_an_executor_gets_name_the_topics_that_expressions_match() -> None:
    settings = RouteSettings(name="all", inputs=("^ord.*", "^x"), scope="partition")
    inputs = BackfillInputs((settings,), {}, "g", 12, 0, ("copy", "old"), instead_of="orders")
    sent: BackfillInputs = pickle.loads(pickle.dumps(inputs))  # noqa: S301 - our own
    assert sent.routes[0].inputs == ("orders",)
    assert sent.by_topic.keys() == inputs.by_topic.keys() == {"copy", "old"}
    assert [each.topic for each in sent.by_topic.values()] == ["orders", "orders"]


@pytest.mark.parametrize("length", range(10))
def test_partitions_are_those_of_the_client_where_there_is_none(length: int) -> None:
    for number in range(200):
        key = (b"%d" % (number * 7_919 + (1 << 33)) + b"\xff\x80")[::-1][:length]
        assert without_client(key, 1 + number) == murmur2(key, 1 + number)
