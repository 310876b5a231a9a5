"""The judge beside the service's own deciding code, record by record."""

from random import Random

import pytest

from pipeline.backfill.decider import BatchDecider, SparkRecord
from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.paged_store import PagedStore
from state.model import PartitionId
from tests.unit.pipeline.backfill.histories import (
    NOW_MS,
    SETTINGS,
    STRATEGIES,
    history,
    inputs_of,
    route,
)
from tests.unit.pipeline.backfill.the_service import Said, TheService

OWN = PartitionId("orders", 0)
BY_ADDRESS = PartitionId("g.by-address", 0)


class Dict(dict[bytes, bytes]):
    """See `Entries`."""

    def put(self, key: bytes, value: bytes) -> None:
        self[key] = value

    def remove(self, key: bytes) -> None:
        del self[key]


def judged(
    decider: PartitionId, inputs: BackfillInputs, rows: list[SparkRecord], random: Random
) -> dict[tuple[PartitionId, int], Said]:
    entries = Dict()
    said: dict[tuple[PartitionId, int], Said] = {}
    at, positions = 0, []
    while at < len(rows):
        judge = BatchDecider(decider, inputs, PagedStore(entries), NOW_MS)
        size = random.choice([1, 30, 3_000])
        for verdict in judge.judge(rows[at : at + size]):
            place = (verdict.source, verdict.offset)
            assert place not in said
            said[place] = Said(verdict.verdict, verdict.original)
            positions.append(verdict.position)
        judge.close()
        at += size
    assert positions == sorted(positions)
    return said


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("on_duplicate", ["dead_letter", "mark"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_judge_says_what_the_service_says(strategy: str, on_duplicate: str, seed: int) -> None:
    random = Random(f"{strategy} {seed}")
    settings = {"#": {**SETTINGS[strategy], "on_duplicate": on_duplicate}}
    inputs = inputs_of(settings, route("orders", scope="partition"))
    rows = history(random, strategy, [OWN], 2_000)
    expected = TheService(OWN, inputs, random, NOW_MS).say(rows)
    found = judged(OWN, inputs, rows, random)
    assert found == expected
    assert len({said.verdict for said in found.values()}) > 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_judge_of_what_many_inputs_bring_says_what_the_service_says(strategy: str) -> None:
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
    found = judged(BY_ADDRESS, inputs, rows, random)
    assert found == expected
    assert "no-address" in {said.verdict for said in found.values()}


def test_no_more_addresses_are_held_than_may_be() -> None:
    random = Random(1)
    settings = {"#": {"addresses_max": 5}}
    inputs = inputs_of(settings, route("orders", scope="partition", address="{header:_TENANT}"))
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", b"%d" % random.randrange(20))])
        for row in history(random, "ring", [OWN], 500)
    ]
    found = judged(OWN, inputs, rows, random)
    assert found == TheService(OWN, inputs, random, NOW_MS).say(rows)
    assert "too-many-addresses" in {said.verdict for said in found.values()}


def test_ids_may_be_made_of_other_fields() -> None:
    random = Random(2)
    made = route("orders", scope="partition", id="{key}:{sha256:value}", missing_id="dead_letter")
    inputs = inputs_of({}, made)
    rows = history(random, "ring", [OWN], 500)
    found = judged(OWN, inputs, rows, random)
    assert found == TheService(OWN, inputs, random, NOW_MS).say(rows)
    assert "missing-id" in {said.verdict for said in found.values()}
