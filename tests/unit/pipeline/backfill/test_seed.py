"""A service seeded with what a judge remembers answers as if it had seen the messages."""

from collections.abc import Iterator
from random import Random

import pytest

from ringfence_client.headers import DUPLICATE_ID, NUMBER, PUBLISHER
from ringfence_pipeline.backfill.decider import BatchDecider, SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.paged_store import PagedStore, section_of_page, unpacked_page
from ringfence_pipeline.backfill.seed import SeedEntries, SeedNumber, SeedReader, sections_of
from ringfence_service.import_ids.source import IdLine
from ringfence_state.model import PartitionId
from tests.unit.pipeline.backfill.histories import NOW_MS, STRATEGIES, history, inputs_of, route
from tests.unit.pipeline.backfill.test_decider import BY_ADDRESS, OWN, Dict
from tests.unit.pipeline.backfill.the_service import TheService

HOLDS_ALL = {
    "id_cache_size": 10_000,
    "window_size": 10_000,
    "window_ms": 10**12,
    "audit_depth": 1_000,
    "process_expired": False,
}


def shelves(decider: PartitionId, entries: Dict) -> Iterator[SeedEntries]:
    found = [(section_of_page(key), content) for key, content in sorted(entries.items())]
    return sections_of(
        (decider, shelf, unpacked_page(content)) for shelf, content in found if shelf
    )


def remembered(decider: PartitionId, inputs: BackfillInputs, rows: list[SparkRecord]) -> Dict:
    entries = Dict()
    for at in range(0, len(rows), 700):
        judge = BatchDecider(decider, inputs, PagedStore(entries), NOW_MS)
        judge.judge(rows[at : at + 700])
        judge.close()
    return entries


@pytest.mark.parametrize("scope", ["partition", "address"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_seeded_service_answers_like_one_that_saw_the_messages(strategy: str, scope: str) -> None:
    random = Random(strategy)
    inputs = inputs_of({"#": {**HOLDS_ALL, "strategy": strategy}}, route("orders", scope=scope))
    decider = OWN if scope == "partition" else BY_ADDRESS
    rows = [
        row._replace(headers=[each for each in row.headers if not _is_of_a_window(strategy, each)])
        for row in history(random, strategy, [OWN], 3_000, groups=False)
    ]
    claims = {DUPLICATE_ID} if strategy in {"ring", "window"} else {PUBLISHER}
    rows = [row for row in rows if claims & {name for name, _ in row.headers}]
    memories = SeedReader(inputs)
    told = [
        each
        for shelf in shelves(decider, remembered(decider, inputs, rows))
        for each in memories.rows(shelf)
    ]
    itself = TheService(decider, inputs, random, NOW_MS)
    before, again = itself.say(rows), itself.say(rows)
    service = TheService(decider, inputs, random, NOW_MS)
    service.know(told)
    said = service.say(rows)
    assert [each.verdict for each in said.values()] == [each.verdict for each in again.values()]
    # What was out of order may be in order by now.
    accepted = {place for place, each in said.items() if each.verdict == "accepted"}
    assert not [place for place in accepted if before[place].verdict == "accepted"]
    assert memories.left_out == {}
    assert told


def _is_of_a_window(strategy: str, header: tuple[str, bytes | None]) -> bool:
    return strategy == "window" and header[0] == PUBLISHER


def test_numbers_that_an_audit_has_not_seen_may_still_come() -> None:
    inputs = inputs_of({"#": {"strategy": "audit", "audit_depth": 10}}, route("orders"))

    def row(offset: int, number: int) -> SparkRecord:
        headers = [(PUBLISHER, b"p"), (NUMBER, b"%d" % number)]
        return SparkRecord(OWN, offset, NOW_MS - 1, None, None, headers)

    came = [row(at, number) for at, number in enumerate([1, 40, 42, 45, 44])]
    entries = remembered(BY_ADDRESS, inputs, came)
    (told,) = (
        each for shelf in shelves(BY_ADDRESS, entries) for each in SeedReader(inputs).rows(shelf)
    )
    assert isinstance(told, SeedNumber)
    assert told.row["sequence"] == 45
    assert told.row["missing"] == [36, 37, 38, 39, 41, 43]


def test_ids_of_publishers_are_counted_and_left_out() -> None:
    inputs = inputs_of({"#": {"strategy": "window"}}, route("orders"))
    headers = [(DUPLICATE_ID, b"x"), (PUBLISHER, b"p")]
    plain = [(DUPLICATE_ID, b"y")]
    rows = [
        SparkRecord(OWN, at, NOW_MS, None, None, each) for at, each in enumerate([headers, plain])
    ]
    memories = SeedReader(inputs)
    (told,) = (
        each
        for shelf in shelves(BY_ADDRESS, remembered(BY_ADDRESS, inputs, rows))
        for each in memories.rows(shelf)
    )
    assert isinstance(told, IdLine)
    assert told.row["id"] == "y"
    assert list(memories.left_out.values()) == [1]
