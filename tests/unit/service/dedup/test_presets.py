"""Presets: the ids that event formats define, and which messages of a stream of changes are copies.

The events are those of the documentation of each format: Debezium 3 (create, update, delete,
snapshots, tables without a primary key), TiCDC (Canal-JSON with the TiDB extension), CloudEvents.
"""

import itertools
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from service.config.templates import PRESETS, expanded
from service.dedup.claim import identifier_of
from tests.support.deciding import record
from tests.support.helpers import rows, some

Event = Mapping[str, Any]

EVENT = [("ce_specversion", b"1.0"), ("ce_source", b"/shop"), ("ce_id", b"A 1")]
STRUCTURED = b'{"specversion": "1.0", "source": "/shop", "id": "A 1", "data": {"id": 7}}'


@rows(
    ("preset", "value", "headers", "identifier"),
    {
        "an event with headers": ("{cloudevents}", b"", EVENT, b"/shop A 1"),
        "an event as one document": ("{cloudevents-json}", STRUCTURED, [], b"/shop A 1"),
        "an event without an id": ("{cloudevents}", b"", EVENT[:2], None),
        "a tombstone": ("{debezium}", None, [], None),
        "a heartbeat": ("{debezium-flat}", b'{"ts_ms": 1}', [], None),
    },
)
def test_a_preset_is_the_id_that_an_event_format_defines(
    preset: str, value: bytes | None, headers: list[tuple[str, bytes | None]], identifier: bytes
) -> None:
    made = some(identifier_of(expanded(preset)))
    assert made.of(record(0, value=value), headers) == identifier


def postgresql(op: str, lsn: int, row: Event | None, **more: Any) -> dict[str, Any]:
    """Return a change event; `more` are members of its source."""
    source = {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_732_000_000_000 + lsn,
        "snapshot": "false",
        "db": "shop",
        "sequence": f'["{lsn - 8}","{lsn}"]',
        "schema": "public",
        "table": "order_lines",
        "txId": lsn // 100,
        "lsn": lsn,
        "xmin": None,
    }
    before, after = (row, None) if op == "d" else (None, row)
    envelope = {"before": before, "after": after, "source": {**source, **more}, "transaction": None}
    return {**envelope, "op": op, "ts_ms": 1_732_000_000_900 + lsn}


def mysql(op: str, pos: int, row: int, after: Event) -> dict[str, Any]:
    """Return a change event of MySQL, of which several may have one position."""
    source = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "shop",
        "ts_ms": 1_732_000_000_000,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "table": "order_lines",
        "server_id": 223344,
        "gtid": None,
        "file": "mysql-bin.000003",
        "pos": pos,
        "row": row,
        "thread": 7,
        "query": None,
    }
    return {"before": None, "after": after, "source": source, "op": op, "ts_ms": 1_732_000_000_900}


def line(number: int, **more: Any) -> dict[str, Any]:
    return {"order_id": 1, "line": number, "price": 9.5, **more}


POSTGRESQL = {
    "three lines of one order, copied by COPY": [postgresql("c", 500, line(n)) for n in (1, 2, 3)],
    "the first snapshot": [
        postgresql("r", 400, line(n), snapshot=position, ts_ms=1_731_000_000_000)
        for n, position in enumerate(("first", "true", "true", "last"))
    ],
    "a snapshot of the same rows later": [
        postgresql("r", 400, line(n), snapshot=position, ts_ms=1_731_000_009_000)
        for n, position in enumerate(("first", "true", "true", "last"))
    ],
    "two incremental snapshots of an idle database": [
        postgresql("r", 400, line(n), snapshot="incremental", ts_ms=1_731_000_000_000 + at)
        for at in (100, 200)
        for n in range(3)
    ],
    "a row that goes to and fro": [
        postgresql("u", 600 + at, line(1, price=price)) for at, price in enumerate((1, 2, 1, 2))
    ],
    "a delete, and the row again": [
        postgresql("d", 700, {"order_id": 1, "line": 1}),
        postgresql("c", 701, line(1)),
    ],
    "changes of one transaction in two tables": [
        postgresql("c", 800, line(1), table=table) for table in ("order_lines", "order_lines_old")
    ],
}

MYSQL = {
    "rows of one statement": [mysql("c", 484, row, line(row)) for row in range(3)],
    "an equal row at another position": [mysql("c", 999, 0, line(0))],
}


def sent_again(event: Event) -> Iterable[Event]:
    """Return what a connector sends that reads the same change again."""
    later = deepcopy(dict(event))
    later["ts_ms"] += 60_000
    if later["source"].get("sequence"):
        later["source"]["sequence"] = f'[null,"{later["source"]["lsn"]}"]'
    upgraded = deepcopy(later)
    upgraded["source"] |= {"version": "3.1.2.Final", "ts_us": 1, "ts_ns": 2}
    upgraded |= {"ts_us": 3, "ts_ns": 4}
    return event, later, upgraded


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
        ("{debezium}", POSTGRESQL | MYSQL),
    ],
)
def test_only_changes_that_are_sent_again_are_copies(
    preset: str, stream: Mapping[str, list[Event]], *, has_schema: bool
) -> None:
    changes = list(itertools.chain.from_iterable(stream.values()))
    found: dict[bytes, int] = {}
    for number, change in enumerate(changes):
        for event in sent_again(change):
            whole = {"schema": {"type": "struct"}, "payload": event} if has_schema else event
            (identifier,) = ids_of(preset, [whole])
            assert found.setdefault(identifier, number) == number
    assert len(found) == len(changes)


def test_flattened_changes_are_told_apart_by_their_position() -> None:
    rows = [{**line(1), "__op": "u", "__source_lsn": lsn, "__source_ts_ms": 5} for lsn in (1, 2)]
    rows += [{**line(n), "__op": "c", "__source_lsn": 3, "__source_ts_ms": 5} for n in (1, 2)]
    again = [{**each, "__ts_ms": 99} for each in rows]
    assert len(set(ids_of("{debezium-flat}", rows))) == len(rows)
    assert ids_of("{debezium-flat}", rows) == ids_of("{debezium-flat}", again)


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
