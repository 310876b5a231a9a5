"""Change events of Debezium 3, as its documentation has them, and what a connector sends again."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

Event = Mapping[str, Any]


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


def in_transaction(event: dict[str, Any], number: int) -> Event:
    """Return an event with provide.transaction.metadata=true."""
    order = {"id": "571:53195832", "total_order": number, "data_collection_order": number}
    return {**event, "transaction": order}


POSTGRESQL: Mapping[str, list[Event]] = {
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
    "rows of a transaction that is numbered": [
        in_transaction(postgresql("c", 900, line(n)), n) for n in (5, 6)
    ],
    "changes of one transaction in two tables": [
        postgresql("c", 800, line(1), table=table) for table in ("order_lines", "order_lines_old")
    ],
}

MYSQL: Mapping[str, list[Event]] = {
    "rows of one statement": [mysql("c", 484, row, line(row)) for row in range(3)],
    "an equal row at another position": [mysql("c", 999, 0, line(0))],
}


def sent_again(event: Event) -> Iterable[Event]:
    """Return what a connector sends that reads the same change again."""
    later = deepcopy(dict(event))
    later["ts_ms"] += 60_000
    if later["source"].get("sequence"):
        later["source"]["sequence"] = f'[null,"{later["source"]["lsn"]}"]'
    if later.get("transaction"):
        later["transaction"] |= {"total_order": 1, "data_collection_order": 1}
    upgraded = deepcopy(later)
    upgraded["source"] |= {"version": "3.1.2.Final", "ts_us": 1, "ts_ns": 2, "xmin": 740}
    upgraded |= {"ts_us": 3, "ts_ns": 4}
    return event, later, upgraded


def with_schema(event: Event) -> Event:
    """Return what Connect's JSON converter writes with schemas.enable=true."""
    fields = [{"type": "string", "field": name} for name in event]
    return {"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": event}
