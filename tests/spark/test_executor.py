"""What an executor of Spark has to have: beside this project only what Spark itself needs."""

import json
import pickle
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest
from confluent_kafka import murmur2
from pyspark import cloudpickle

from ringfence_client.headers import DUPLICATE_ID
from ringfence_pipeline.backfill.columns import PLACE_INDEX, slots_of
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.processor import BackfillProcessor
from ringfence_pipeline.backfill.slots import SLOT
from ringfence_service.config.model import RouteSettings
from ringfence_service.kafka.murmur2 import murmur2 as without_client
from ringfence_state.model import PartitionId
from tests.spark.cluster import bare_python
from tests.support.shadowing import shadowing
from tools.source_roots import SOURCE_ROOTS, python_path

pytestmark = pytest.mark.spark

PROGRAM: Final = """
import json, pickle, sys

sys.path[:0] = [sys.argv[1]]
sys.path += sys.argv[2].split(":")

class Handle(dict):
    def getMapState(self, *names):
        return self
    getValue, updateValue, removeKey = dict.get, dict.__setitem__, dict.__delitem__

processor, frames = pickle.load(sys.stdin.buffer)
processor.init(Handle())
found = [row for frame in frames
    for each in processor.handleInputRows((frame["slot"][0],), iter([frame]), None)
    for named in [each[["offset", "address", "verdict", "original"]].astype(object)]
    for row in named.where(named.notna(), None).itertuples(index=False)]
import ringfence_client.spark
from ringfence_state.model import PartitionId
number = processor._inputs.number(PartitionId("orders", 0), frames, ())
print(json.dumps([sorted(map(list, found)), number]))
"""


def frame(slot: int, first: int, ids: list[bytes | None]) -> pd.DataFrame:
    """Records of one partition, of which one without an id has its headers."""
    count = len(ids)
    headers = json.dumps({"headers": [{"key": DUPLICATE_ID, "value": b64encode(b"3").decode()}]})
    columns: dict[str, list[Any]] = {
        SLOT: [slot] * count,
        PLACE_INDEX: [slot] * count,
        "offset": list(range(first, first + count)),
        "timestamp_ms": [1_000] * count,
        "now_ms": [2_000] * count,
        "id": list(ids),
        "rest": [None if each else headers for each in ids],
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
    slot = slots_of(inputs).index_of(PartitionId("orders", 0))
    first = frame(slot, 0, [b"%d" % number for number in range(40)])
    frames = [first, frame(slot, 40, [b"7", None, b"new"])]
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    ran = subprocess.run(
        [
            *(bare_python(tmp_path / "python"), "-I", "-c", PROGRAM),
            shadowing(tmp_path / "theirs", SOURCE_ROOTS),
            python_path(Path(__file__).parents[2]),
        ],
        input=dumps((BackfillProcessor(inputs), frames)),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    rows, number = json.loads(ran.stdout)
    accepted = {offset for offset, _, verdict, _ in rows if verdict == "accepted"}
    if strategy != "audit":  # which reads numbers, not ids
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
