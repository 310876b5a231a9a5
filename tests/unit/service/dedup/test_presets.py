"""Presets: the ids that event formats define, and which messages of a stream of changes are copies.

The events are those of the documentation of each format: Debezium 3 (create, update, delete,
snapshots, tables without a primary key), TiCDC (Canal-JSON with the TiDB extension), CloudEvents.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ringfence_service.config.templates import PRESETS, expanded
from ringfence_service.dedup.claim import identifier_of
from tests.support.debezium import MYSQL, POSTGRESQL, Event, line, sent_again, with_schema
from tests.support.deciding import record
from tests.support.helpers import rows, some

EVENT = [("ce_specversion", b"1.0"), ("ce_source", b"/shop"), ("ce_id", b"A 1")]
STRUCTURED = b'{"specversion": "1.0", "source": "/shop", "id": "A 1", "data": {"id": 7}}'


@rows(
    ("preset", "value", "headers", "identifier"),
    {
        "an event with headers": ("{cloudevents}", b"", EVENT, b"/shop A 1"),
        "an event as one document": ("{cloudevents-json}", STRUCTURED, [], b"/shop A 1"),
        "an event without an id": ("{cloudevents}", b"", EVENT[:2], None),
        "a tombstone": ("{debezium}", None, [], None),
        "a heartbeat": ("{debezium}", b'{"ts_ms": 1}', [], None),
        "a flat row, whose position {debezium} does not know": (
            "{debezium}",
            b'{"line": 1, "__op": "u", "__source_lsn": 2}',
            [],
            None,
        ),
        "the payload of an outbox": ("{debezium}", b'{"order": 1}', [], None),
        "a flat row without a position": ("{debezium-flat}", b'{"line": 1, "__op": "u"}', [], None),
    },
)
def test_a_preset_is_the_id_that_an_event_format_defines(
    preset: str, value: bytes | None, headers: list[tuple[str, bytes | None]], identifier: bytes
) -> None:
    made = some(identifier_of(expanded(preset)))
    assert made.of(record(0, value=value), headers) == identifier


def ids_of(preset: str, events: Iterable[Event]) -> list[bytes]:
    made = some(identifier_of(expanded(preset)))
    values = [json.dumps(each).encode() for each in events]
    # The key is that of the order: message.key.columns, as with tables without a primary key.
    return [some(made.of(record(0, key=b'{"order_id":1}', value=each), [])) for each in values]


@pytest.mark.parametrize("has_schema", [False, True], ids=["bare", "with its schema"])
@pytest.mark.parametrize(
    ("preset", "stream"),
    [
        ("{debezium-postgresql}", POSTGRESQL),
        ("{debezium-mysql}", MYSQL),
        ("{debezium}", {**POSTGRESQL, **MYSQL}),
    ],
)
def test_only_changes_that_are_sent_again_are_copies(
    preset: str, stream: Mapping[str, list[Event]], *, has_schema: bool
) -> None:
    changes = list(itertools.chain.from_iterable(stream.values()))
    found: dict[bytes, int] = {}
    for number, change in enumerate(changes):
        for event in sent_again(change):
            whole = with_schema(event) if has_schema else event
            (identifier,) = ids_of(preset, [whole])
            assert found.setdefault(identifier, number) == number
    assert len(found) == len(changes)


@pytest.mark.parametrize("has_schema", [False, True], ids=["bare", "with its schema"])
@pytest.mark.parametrize("position", ["__source_lsn", "__lsn", "__pos", "__source_change_lsn"])
def test_flattened_changes_are_told_apart_by_their_position(
    position: str, *, has_schema: bool
) -> None:
    rows: list[Event] = [
        {**line(1), "__op": "u", position: lsn, "__source_ts_ms": 5} for lsn in (1, 2)
    ]
    rows += [{**line(n), "__op": "c", position: 3, "__source_ts_ms": 5} for n in (1, 2)]
    rows += [{**line(1), "__op": "r", position: 4, "__source_ts_ms": at} for at in (6, 7)]
    rows += [{**line(1), "schema": at, "__op": "c", position: 5} for at in ("a", "b")]
    again: list[Event] = [
        {**each, "__ts_ms": 99, "__source_version": "3.1.2.Final"} for each in rows
    ]
    if has_schema:
        rows, again = ([with_schema(each) for each in sent] for sent in (rows, again))
    assert len(set(ids_of("{debezium-flat}", rows))) == len(rows)
    assert ids_of("{debezium-flat}", rows) == ids_of("{debezium-flat}", again)


def test_changes_as_cloud_events_are_told_apart_by_their_content() -> None:
    """Debezium makes their id of the position, which all rows of a snapshot have."""

    def event(number: int, time: str = "2026-11-29T15:00:00Z", sequence: str = "[]") -> Event:
        return {
            "id": f"name:shop;lsn:29274832;txId:565;sequence:{sequence}",
            "source": "/debezium/postgresql/shop",
            "specversion": "1.0",
            "type": "io.debezium.connector.postgresql.DataChangeEvent",
            "time": time,
            "iodebeziumconnector": "postgresql",
            "iodebeziumlsn": "29274832",
            "iodebeziumsequence": sequence,
            "data": with_schema({"before": None, "after": line(number)}),
        }

    rows = [event(1), event(2), event(1, "2026-11-29T16:00:00Z")]
    again = [{**each, "iodebeziumversion": "3.1.2.Final", "id": "name:shop;…"} for each in rows]
    assert len(set(ids_of("{debezium-cloudevents}", rows))) == len(rows)
    assert ids_of("{debezium-cloudevents}", rows) == ids_of("{debezium-cloudevents}", again)
    assert len(set(ids_of("{cloudevents-json}", rows))) == 1


def test_changes_of_tidb_are_told_apart_by_their_commit() -> None:
    def change(commit: int, price: int, ts: int) -> dict[str, Any]:
        return {
            "id": 0,
            "database": "shop",
            "table": "order_lines",
            "pkNames": ["line"],
            "isDdl": False,
            "type": "UPDATE",
            "es": 1_732_000_000_000,
            "ts": ts,
            "data": [{"line": "1", "price": str(price)}],
            "old": [{"price": "0"}],
            "_tidb": {"commitTs": commit},
        }

    first = [change(1, 1, 5), change(2, 2, 5), change(3, 1, 5)]
    again = [change(1, 1, 6), change(2, 2, 6), change(3, 1, 6)]
    assert len(set(ids_of("{ticdc-canal-json}", first))) == len(first)
    assert ids_of("{ticdc-canal-json}", first) == ids_of("{ticdc-canal-json}", again)


def test_a_preset_may_stand_beside_text_and_fields() -> None:
    for preset in PRESETS:
        assert identifier_of(expanded(f"v2:{preset}:{{key}}")) is not None
