"""Dead letters from a shell: listed, shown, counted, exported; and why a record was dropped."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from api.view import ServiceView
from service.letter_values import LetterPlace
from tests.api.fake_letters import FOREIGN, LETTER, FakeLetters
from tests.unit.service.commands.conftest import Shell

pytestmark = pytest.mark.usefixtures("url")
HERE = "orders.dlq-0@7"


def test_the_newest_comes_first_and_the_oldest_when_asked(shell: Shell) -> None:
    assert [row[1] for row in shell("dead-letter", "ls").rows[1:]] == ["orders.dlq-0@8", HERE]
    assert [row[1] for row in shell("dead-letter", "ls", "--oldest").rows[1:]] == [
        HERE,
        "orders.dlq-0@8",
    ]


def test_each_names_the_record_that_it_repeats(shell: Shell) -> None:
    row = shell("dead-letter", "ls", "--because", "duplicate").rows[1]
    assert row[2:] == ["duplicate", "orders", "id-1", "orders-3@90", "orders-3@42"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--address", "orders"], 1),
        (["--address", "other"], 0),
        (["--because", "expired"], 0),
        (["--because", "expired", "--because", "duplicate"], 1),
        (["--from", "2023-11-14T22:13:20Z"], 2),
        (["--from", "1h"], 0),
        (["--to", "2023-11-14T22:13:20Z"], 0),
        (["--key", "customer-5", "--header", "tenant=acme"], 2),
        (["--header", "tenant=other"], 0),
    ],
)
def test_they_are_filtered(shell: Shell, words: list[str], found: int) -> None:
    ran = shell("dead-letter", "ls", *words)
    assert (ran.code, len(ran.rows) - 1) == (0, found)
    assert ("No dead letter fits." in ran.err) == (found == 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ls", "--from", "yesterday"], "2026-01-02T03:04:05Z"),
        (["ls", "--header", "tenant"], "NAME=VALUE"),
        (["show", "orders"], "topic-partition@offset"),
    ],
)
def test_what_cannot_be_read_is_told_with_how_to_write_it(
    shell: Shell, words: list[str], told: str
) -> None:
    ran = shell("dead-letter", *words)
    assert ran.code == 2
    assert told in ran.err


def test_one_is_shown_with_what_it_holds(shell: Shell) -> None:
    ran = shell("dead-letter", "show", HERE)
    assert ["duplicate of", "orders-3@42"] in ran.rows
    assert ["key", "customer-5"] in ran.rows
    assert ["value", '{"secret": 1}'] in ran.rows
    assert ["tenant", "acme"] in ran.rows
    assert shell("dead-letter", "show", "orders.dlq-0@99").code == 3


def test_they_are_counted(shell: Shell) -> None:
    ran = shell("dead-letter", "summary")
    assert ["duplicate", "1", "100.0%"] in ran.rows
    assert json.loads(shell("dead-letter", "summary", "--json").out)["dead_letters"] == 1
    assert "1 dead letter, and 1 that are not ours" in shell("dead-letter", "summary", typed="").out


def test_they_are_exported_the_oldest_first_with_what_they_hold_when_asked(
    shell: Shell, user: Path
) -> None:
    told = [json.loads(line) for line in shell("dead-letter", "export").out.splitlines()]
    assert [each["offset"] for each in told] == [LETTER.place.offset, FOREIGN.place.offset]
    assert told[0]["payload"] is None
    file = user / "letters.ndjson"
    shell("dead-letter", "export", "--payload", "--out", str(file))
    assert json.loads(file.read_text().splitlines()[0])["payload"]["key"]["text"] == "customer-5"


@pytest.mark.parametrize("place", [HERE, "orders-3@90"])
def test_why_answers_by_the_dead_letter_and_by_the_record(shell: Shell, place: str) -> None:
    ran = shell("why", place)
    assert ran.code == 0
    assert ["duplicate of", "orders-3@42"] in ran.rows
    assert ["accepted", "2023-11-14T22:13:20Z"] in ran.rows
    document = json.loads(shell("why", place, "--json").out)
    assert document["dead_letter"]["original"] == "orders-3@42"
    assert document["id"]["sightings"][0]["offset"] == 42
    assert f"ringfence redrive start --mode forget {HERE}" in shell("why", place, typed="").err


def test_why_of_a_record_that_was_not_dropped_ends_with_3(shell: Shell) -> None:
    ran = shell("why", "orders-3@91")
    assert ran.code == 3
    assert "accepted" in ran.err


def test_tail_tells_each_that_comes_once_and_waits_for_a_service_that_is_away(
    shell: Shell, view: ServiceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = round(time.time() * 1000) + 60_000
    first = LETTER._replace(time_ms=now_ms)
    second = first._replace(place=LetterPlace("orders.dlq", 1, 0))
    assert isinstance(view.letters, FakeLetters)
    letters = view.letters
    steps = iter(
        [
            lambda: letters.come(first),
            letters.go_away,
            lambda: letters.come(second),
            lambda: None,
            _interrupt,
        ]
    )
    clock = SimpleNamespace(sleep=lambda _s: next(steps)())
    monkeypatch.setattr("service.commands.dead_letters.time", clock)
    ran = shell("dead-letter", "tail", "--timeout", "0.1", "--json")
    assert [json.loads(line)["partition"] for line in ran.out.splitlines()] == [0, 1]
    assert ran.err.count("Waiting") == 1


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_tail_does_not_wait_for_what_has_never_answered(shell: Shell, view: ServiceView) -> None:
    assert isinstance(view.letters, FakeLetters)
    view.letters.go_away()
    assert shell("dead-letter", "tail", "--timeout", "0.1").code == 6
