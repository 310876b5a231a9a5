"""Records of changes: on the topic, in the trail, bounded."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.audit import (
    SIDE_CHARS_MAX,
    AuditHistory,
    AuditQuery,
    AuditRecord,
    is_audit,
    new_id,
    record_of,
    removal,
)
from ringfence_service.metadata.record import MetadataRecord
from ringfence_state.offset_metadata import decode
from tests.fakes.partition import Record
from tests.support.helpers import some
from tests.support.living import GROUP, ORDERS, Living, registry_of, turns

TOPIC = config_topic(GROUP)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


def record(time_ms: int = 1, **changed: Any) -> AuditRecord:
    told = AuditRecord(
        id=f"{time_ms:013d}-x",
        time_ms=time_ms,
        actor="ada",
        roles=("admin",),
        request_id="r",
        source="10.0.0.1",
        method="PUT",
        path="/v1/a",
        query="",
        reason="",
    )
    return told._replace(**changed)


def revision(living: Living) -> int:
    metadata = some(decode(living.cluster.group(GROUP).committed[ORDERS].metadata))
    return metadata.revision


@given(before=ANYTHING, after=ANYTHING)
def test_a_record_comes_back_as_it_was_written(before: object, after: object) -> None:
    whole = record(before=before, after=after, status=200, duration_ms=3)
    assert record_of(*whole.record) == whole


def test_long_values_are_cut_and_can_still_be_distinguished() -> None:
    long, other = ["x" * SIDE_CHARS_MAX], ["x" * SIDE_CHARS_MAX + "y"]
    written = record(before=long, after=other, reason="r" * 5_000, path="/" * 100_000).record
    assert len(written.value or b"") < 3 * SIDE_CHARS_MAX
    told = json.loads(written.value or b"")
    assert told["before"]["chars"] == SIDE_CHARS_MAX + 4
    assert told["before"]["sha256"] != told["after"]["sha256"]


def test_what_json_has_no_word_for_is_written_as_text() -> None:
    assert b"frozenset" in (record(before=frozenset({1})).record.value or b"")


def test_half_a_character_is_no_reason_not_to_record() -> None:
    told = some(record_of(*record(before={"a": "\ud800b"}, reason="\udfff").record))
    assert (told.before, told.reason) == ({"a": "?b"}, "?")


def test_ids_are_in_the_order_of_time_and_never_the_same() -> None:
    ids = [new_id(time_ms) for time_ms in (9, 10, 1_700_000_000_000, 1_700_000_000_001)]
    assert ids == sorted(ids)
    assert len({new_id(1) for _ in range(1_000)}) == 1_000


def test_the_outcome_takes_the_place_of_the_intent() -> None:
    trail = AuditHistory()
    trail.take(*record().record)
    trail.take(*record(status=200).record)
    (only,) = trail.page(AuditQuery(), 10, None).records
    assert only.status == 200


def test_records_that_come_late_stand_where_they_belong() -> None:
    trail = AuditHistory()
    for time_ms in (3, 1, 2):
        trail.take(*record(time_ms).record)
    assert [each.time_ms for each in trail.page(AuditQuery(), 10, None).records] == [3, 2, 1]
    assert trail.oldest(2) == [record(1).id, record(2).id]


def test_what_was_taken_away_is_gone() -> None:
    trail = AuditHistory()
    trail.take(*record().record)
    trail.take(*removal(record().id))
    trail.take(*removal("never"))
    assert len(trail) == 0
    assert trail.page(AuditQuery(), 10, None).records == ()


def test_other_kinds_and_what_is_malformed_are_left_alone() -> None:
    trail = AuditHistory()
    for key, value in (
        (b'["session","P"]', b"{}"),
        (b'["audit"]', b"{}"),
        (b'["audit",7]', b"{}"),
        (b"", b""),
        (None, None),
    ):
        trail.take(key, value)
    assert len(trail) == 0
    trail.take(b'["audit","1"]', b"[]")
    assert trail.page(AuditQuery(), 10, None).records == ()


@given(
    times_ms=st.lists(st.integers(0, 50), unique=True),
    since_ms=st.none() | st.integers(0, 50),
    until_ms=st.none() | st.integers(0, 50),
    size=st.integers(1, 7),
)
def test_pages_hold_each_record_that_is_asked_for_once(
    times_ms: list[int], since_ms: int | None, until_ms: int | None, size: int
) -> None:
    trail = AuditHistory()
    for time_ms in times_ms:
        trail.take(*record(time_ms).record)
    query, found, before = AuditQuery(since_ms=since_ms, until_ms=until_ms), [], None
    while True:
        page = trail.page(query, size, before)
        found += [each.time_ms for each in page.records]
        assert len(page.records) <= size
        before = page.before
        if before is None:
            break
    low, high = since_ms or 0, 51 if until_ms is None else until_ms
    assert found == sorted((t for t in times_ms if low <= t < high), reverse=True)


def test_nothing_is_decided_by_a_record_of_the_audit() -> None:
    key, _ = record().record
    assert is_audit(key)
    assert not is_audit(MetadataRecord.of(["audits"], {}).key)
    assert not is_audit(None)


def test_a_follower_of_the_settings_is_at_the_same_revision_after_it() -> None:
    living = Living(addresses={"#": {"strategy": "sequence"}})
    loop = living.running()
    registry_of(living, loop).open("P", "a")
    before = revision(living)
    living.cluster.write(TOPIC, 0, Record(*record().record, None, 1))
    turns(loop, 3)
    assert revision(living) == before
