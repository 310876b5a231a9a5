"""What an address remembers, over HTTP: pages, export and import, forgetting."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringfence_api.content import LINE_BYTES_MAX, NDJSON
from ringfence_service.queries.ids import ImportAnswer, ImportIds
from ringfence_service.queries.registry import Query
from ringfence_state.model import OFFSET_MAX
from tests.api.fake_service import answering
from tests.api.guarded import client_of

IMPORT = "/v1/addresses/orders/ids:import"


Post = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture
def imports() -> list[ImportIds]:
    """What the loop was asked to import."""
    return []


@pytest.fixture
def post(imports: list[ImportIds]) -> Iterator[Post]:
    """Import lines into a loop that decides topic `in` alone, and takes every id for new."""

    def answer(query: Query) -> ImportAnswer:
        assert isinstance(query, ImportIds)
        imports.append(query)
        count = sum((query.topic or each.topic) == "in" for each in query.ids)
        return ImportAnswer(count, count, complete=True)

    def send(lines: str, params: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": NDJSON}
        reply = client.post(IMPORT, content=lines.encode(), params=params, headers=headers)
        document: dict[str, Any] = reply.json()
        return document

    with answering(answer) as view:
        client = client_of(view)
        yield send


def line(number: int, topic: str = "in") -> str:
    return json.dumps({"id": f"id-{number}", "topic": topic, "partition": number % 3}) + "\n"


def test_many_lines_are_taken_in_parts_and_counted_together(
    post: Post, imports: list[ImportIds]
) -> None:
    done = post("".join(map(line, range(10_000))), {})
    assert (done["ids"], done["new"]) == (10_000, 10_000)
    written = [each for each in imports if not each.dry_run]
    assert [known.identifier for each in written for known in each.ids] == [
        b"id-%d" % number for number in range(10_000)
    ]
    assert max(len(each.ids) for each in written) < 10_000
    assert sum(each.dry_run for each in imports) == 1  # no later part names a new place


def test_long_ids_are_taken_in_parts_of_limited_bytes(post: Post, imports: list[ImportIds]) -> None:
    place = {"topic": "in", "partition": 0}
    lines = [json.dumps({"id": f"{n}".zfill(60_000), **place}) + "\n" for n in range(200)]
    assert post("".join(lines), {})["ids"] == 200
    assert max(len(each.ids) for each in imports) <= 4 * 1024 * 1024 // 60_000 + 1


def test_a_trial_import_changes_nothing(post: Post, imports: list[ImportIds]) -> None:
    assert post(line(1), {"dry_run": True})["ids"] == 1
    assert all(each.dry_run for each in imports)


def test_lines_of_a_place_that_nobody_decides_are_refused_before_any_is_taken(
    post: Post, imports: list[ImportIds]
) -> None:
    refused = post(line(1) + line(2, "elsewhere"), {})
    assert "elsewhere-2" in refused["detail"]
    assert "?input=" in refused["detail"]
    assert all(each.dry_run for each in imports)
    assert post(line(1) + line(2, "elsewhere"), {"input": "in"})["ids"] == 2


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("{", "Line 2"),
        ("{}", "Line 2 id"),
        ('{"id": "a", "topic": "in", "partition": -1}', "Line 2 partition"),
        ('{"id": "hex:0", "topic": "in", "partition": 0}', "pairs of hexadecimal"),
        ('{"id": "a", "topic": "in", "partition": 0, "hashed": true}', "65 bytes"),
        ('{"id": "a", "topic": "in", "partition": 0, "time": "2026-01-01T00:00:00"}', "time"),
        ("x" * (LINE_BYTES_MAX + 1), "longer than"),
    ],
)
def test_a_line_that_is_not_one_is_named(post: Post, fault: str, sentence: str) -> None:
    assert sentence in post(line(1) + fault, {})["detail"]


def test_what_was_imported_before_a_fault_is_reported(post: Post) -> None:
    refused = post("".join(map(line, range(5_000))) + "{", {})
    assert "Line 5001" in refused["detail"]
    assert "4000 ids were imported before" in refused["detail"]


def test_a_long_id_is_given_in_its_stored_form(post: Post, imports: list[ImportIds]) -> None:
    told = {"id": "hex:" + "ab" * 65, "topic": "in", "partition": 0, "hashed": True}
    post(json.dumps(told), {})
    assert imports[-1].ids[0].hashed


@pytest.mark.parametrize("offset", [0, OFFSET_MAX])
def test_an_offset_that_the_state_can_keep_is_imported(
    offset: int, post: Post, imports: list[ImportIds]
) -> None:
    given = {"id": "a", "topic": "in", "partition": 0, "offset": offset}
    assert post(json.dumps(given), {})["ids"] == 1
    assert imports[-1].ids[0].offset == offset


@pytest.mark.parametrize("offset", [-1, OFFSET_MAX + 1, 2**62, 2**63 - 1])
def test_an_offset_that_the_state_cannot_keep_is_refused(
    offset: int, post: Post, imports: list[ImportIds]
) -> None:
    given = {"id": "a", "topic": "in", "partition": 0, "offset": offset}
    assert post(json.dumps(given), {})["status"] == 422
    assert imports == []
