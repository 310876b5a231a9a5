"""Redrives from a shell: looked at first, asked for, followed, cancelled."""

import json

import pytest

from tests.api.fake_letters import PAST
from tests.unit.service.commands.conftest import Shell

pytestmark = pytest.mark.usefixtures("url")
START = ("redrive", "start", "--mode", "forget", "--address", "orders")


def begun(shell: Shell) -> str:
    """Begin one, and return its id."""
    return str(json.loads(shell(*START, "--yes", "--reason", "INC-17", "--json").out)["id"])


def test_a_dry_run_counts_and_begins_nothing(shell: Shell) -> None:
    ran = shell(*START, "--dry-run")
    assert ran.code == 0
    assert ["duplicate", "1", "100.0%"] in ran.rows
    assert ["foreign", "1"] in ran.rows
    assert len(shell("redrive", "ls").rows) == 1 + 1


def test_it_is_shown_and_asked_for_before_it_begins(shell: Shell) -> None:
    refused = shell(*START)
    assert refused.code == 2
    assert "Redrive 1 dead letter with mode forget?" in refused.err
    declined = shell(*START, typed="n\n")
    assert declined.code == 1
    assert "The id of each is forgotten" in declined.err
    assert len(shell("redrive", "ls").rows) == 1 + 1
    assert shell(*START, typed="y\n").code == 0
    assert len(shell("redrive", "ls").rows) == 1 + 2


def test_where_nothing_fits_nothing_is_begun(shell: Shell) -> None:
    ran = shell("redrive", "start", "--mode", "through", "--address", "other", "--yes")
    assert ran.code == 1
    assert "No dead letter fits" in ran.err
    assert len(shell("redrive", "ls").rows) == 1 + 1


def test_what_is_ordered_is_what_was_asked_for(shell: Shell) -> None:
    words = ("--mode", "bypass", "--because", "duplicate", "--topic", "orders.dlq", "--key", "x")
    more = ("--header", "tenant=acme", "--rate", "50", "--limit", "9", "--from", "2026-01-02")
    ran = shell("redrive", "start", *words, *more, "--yes", "--reason", "R", "--json", "--dry-run")
    assert ran.code == 0
    ran = shell("redrive", "start", "--mode", "bypass", "orders.dlq-0@7", "--rate", "50", "--yes")
    assert ["dead letters", "1 named one by one"] in ran.rows
    name = begun(shell)
    job = json.loads(shell("redrive", "show", name, "--json").out)
    assert (job["mode"], job["filter"]["address"], job["reason"]) == ("forget", "orders", "INC-17")


def test_one_is_followed_to_its_end(shell: Shell) -> None:
    ran = shell("redrive", "watch", PAST)
    assert (ran.code, ["state", "done"] in ran.rows) == (0, True)
    assert "done 100 %" in ran.err


def test_one_that_is_cancelled_did_not_come_to_its_end(shell: Shell) -> None:
    name = begun(shell)
    assert ["state", "cancelled"] in shell("redrive", "cancel", name).rows
    ran = shell("redrive", "watch", name)
    assert ran.code == 1
    assert "cancelled" in ran.err


def test_one_that_is_not_known_is_told_so(shell: Shell) -> None:
    for words in (["show", "nope"], ["watch", "nope"], ["cancel", "nope"]):
        ran = shell("redrive", *words)
        assert (ran.code, "No redrive nope is known" in ran.err) == (3, True)


def test_what_cannot_be_redriven_is_the_answer_no(shell: Shell) -> None:
    ran = shell("redrive", "start", "--mode", "through", "--topic", "nowhere", "--yes")
    assert ran.code == 1
    assert "nowhere" in ran.err
    assert shell("redrive", "start", "--mode", "sideways").code == 2


def test_letters_are_named_one_by_one_or_by_a_filter(shell: Shell) -> None:
    ran = shell("redrive", "start", "--mode", "through", "orders.dlq-0@7", "--address", "orders")
    assert ran.code == 2
    assert "not by both" in ran.err
