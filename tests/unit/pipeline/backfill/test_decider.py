"""The judge beside the service's own deciding code, record by record."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
import pytest

from ringfence_pipeline.backfill import decider
from ringfence_pipeline.backfill.decider import (
    BatchDecider,
    RecordColumns,
    RecordVerdict,
    SparkRecord,
)
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.kept_states import KeptStates
from ringfence_service.dedup.claim import NO_ID, plain_ids
from ringfence_state.model import PartitionId
from tests.unit.pipeline.backfill.histories import (
    NOW_MS,
    SETTINGS,
    STRATEGIES,
    history,
    inputs_of,
    route,
)
from tests.unit.pipeline.backfill.the_service import Said, TheService

Decide = Callable[[BatchDecider, Sequence[SparkRecord]], list[RecordVerdict]]

OWN = PartitionId("orders", 0)
BY_ADDRESS = PartitionId("g.by-address", 0)


def test_it_decides_where_there_is_no_kafka_client() -> None:
    """As on executors of Spark, which load this module with the rules of the service."""
    absent = "import sys; sys.modules.update(dict.fromkeys(['confluent_kafka', 'rocksdict']))"
    words = [sys.executable, "-c", f"{absent}; import ringfence_pipeline.backfill.decider"]
    subprocess.run(words, check=True)


class Dict(dict[bytes, bytes]):
    """See `Entries`."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        del self[key]


def in_columns(judge: BatchDecider, rows: Sequence[SparkRecord]) -> list[RecordVerdict]:
    """What the judge says of records that come in columns."""
    inputs = judge.inputs
    field = next(iter(inputs.named_headers), None)
    ids, named = list[bytes | None](), list[bytes | None]()
    for row in rows:
        of_field = [value for name, value in row.headers if name == field and value is not None]
        (identifier,) = plain_ids([row.headers])
        is_plain = identifier is not NO_ID and not inputs.by_topic[row.source.topic].settings.id
        ids.append(identifier if is_plain else None)
        named.append(of_field[0] if of_field else None)
    sources = [row.source for row in rows]
    begins = [at for at in range(len(rows)) if at == 0 or sources[at] != sources[at - 1]]
    ends = [*begins[1:], len(rows)]
    times_ms = np.array([row.timestamp_ms for row in rows], dtype=np.int64)
    columns = RecordColumns(
        [(sources[begin], begin, end) for begin, end in zip(begins, ends, strict=True)],
        np.array([row.own_offset for row in rows], dtype=np.int64),
        times_ms,
        ids,
        np.array([identifier is not None for identifier in ids], dtype=bool) & (times_ms > 0),
        named,
        lambda at, _field: rows[at],
    )
    found = judge.judge_columns(columns)
    of_columns = {name: column.to_pylist() for name, column in found.columns.items()}
    verdicts = [
        RecordVerdict(
            source=rows[row].source,
            offset=rows[row].own_offset,
            timestamp_ms=rows[row].timestamp_ms,
            identifier=ids[row],
            **{name: of_columns[name][at] for name in of_columns},
        )
        for at, row in enumerate(found.rows)
    ]
    COLUMNS["rows"] += len(verdicts)
    return sorted([*verdicts, *found.others], key=lambda verdict: verdict.position)


WAYS = {"rows": BatchDecider.judge, "columns": in_columns}
COLUMNS: Counter[str] = Counter()
"""How many records were decided in columns."""


@pytest.fixture(params=WAYS)
def decide(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Decide:
    monkeypatch.setattr(decider, "_COLUMNS_MIN", 3)
    COLUMNS.clear()
    return WAYS[request.param]


def judged(
    partition: PartitionId,
    inputs: BackfillInputs,
    rows: list[SparkRecord],
    random: Random,
    decide: Decide,
) -> dict[tuple[PartitionId, int], Said]:
    entries, kept = Dict(), KeptStates()
    said: dict[tuple[PartitionId, int], Said] = {}
    at, positions = 0, []
    while at < len(rows):
        size = random.choice([1, 30, 300, 3_000])
        if random.random() < 0.1:  # an attempt that fails after it has saved its state
            failing = Dict(entries)
            state = kept.take("run", partition, failing, inputs)
            judge = BatchDecider(partition, inputs, state.store, NOW_MS, state.cache)
            decide(judge, rows[at : at + size])
            judge.close()
            kept.keep("run", partition, state, 1 << 28)
        state = kept.take("run", partition, entries, inputs)
        judge = BatchDecider(partition, inputs, state.store, NOW_MS, state.cache)
        for verdict in decide(judge, rows[at : at + size]):
            place = (verdict.source, verdict.offset)
            assert place not in said
            said[place] = Said(verdict.verdict, verdict.original)
            positions.append(verdict.position)
        judge.close()
        kept.keep("run", partition, state, random.choice([0, 1 << 28, 1 << 28]))
        at += size
    assert positions == sorted(positions)
    return said


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("on_duplicate", ["dead_letter", "mark"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_judge_says_what_the_service_says(
    strategy: str, on_duplicate: str, seed: int, decide: Decide
) -> None:
    random = Random(f"{strategy} {seed}")
    settings = {"#": {**SETTINGS[strategy], "on_duplicate": on_duplicate}}
    inputs = inputs_of(settings, route("orders", scope="partition"))
    rows = history(random, strategy, [OWN], 2_000)
    expected = TheService(OWN, inputs, random, NOW_MS).say(rows)
    found = judged(OWN, inputs, rows, random, decide)
    assert found == expected
    assert len({said.verdict for said in found.values()}) > 3
    assert (COLUMNS["rows"] > 1_000) == (decide is in_columns and strategy == "ring")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_judge_of_what_many_inputs_bring_says_what_the_service_says(
    strategy: str, decide: Decide
) -> None:
    random = Random(strategy)
    settings = {"#": SETTINGS[strategy]}
    several = route("orders", "returns", address="all.{header:_TENANT}")
    inputs = inputs_of(settings, several)
    sources = [PartitionId("orders", 0), PartitionId("orders", 1), PartitionId("returns", 0)]
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", random.choice([b"a", b"b", None]))])
        for row in history(random, strategy, sources, 2_000)
    ]
    expected = TheService(BY_ADDRESS, inputs, random, NOW_MS).say(rows)
    found = judged(BY_ADDRESS, inputs, rows, random, decide)
    assert found == expected
    assert "no-address" in {said.verdict for said in found.values()}


def test_no_more_addresses_are_held_than_may_be(decide: Decide) -> None:
    random = Random(1)
    settings = {"#": {"addresses_max": 5}}
    inputs = inputs_of(settings, route("orders", scope="partition", address="{header:_TENANT}"))
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", b"%d" % random.randrange(20))])
        for row in history(random, "ring", [OWN], 500)
    ]
    found = judged(OWN, inputs, rows, random, decide)
    assert found == TheService(OWN, inputs, random, NOW_MS).say(rows)
    assert "too-many-addresses" in {said.verdict for said in found.values()}


def test_ids_may_be_made_of_other_fields(decide: Decide) -> None:
    random = Random(2)
    made = route("orders", scope="partition", id="{key}:{sha256:value}", missing_id="dead_letter")
    inputs = inputs_of({}, made)
    rows = history(random, "ring", [OWN], 500)
    found = judged(OWN, inputs, rows, random, decide)
    assert found == TheService(OWN, inputs, random, NOW_MS).say(rows)
    assert "missing-id" in {said.verdict for said in found.values()}
