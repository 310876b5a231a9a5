"""Each check finds the anomaly that was planted for it, and a history without one passes."""

from collections.abc import Callable

import pytest

from tests.histories.checks import CHECKS, anomalies
from tests.histories.history import History, Log, Polled, Sent

IN, OUT, LETTERS = Log("in", 0), Log("out", 0), Log("in.dlq", 0)
EARLY, LAST = "early", "last"


def good() -> History:
    """Three inputs, of which the last is a copy, and one that was never acknowledged."""
    sends = [Sent("p", IN, b"%d" % number, number) for number in range(3)]
    lasting = [(IN, 0, b"0"), (IN, 1, b"1"), (IN, 2, b"2")]
    lasting += [(OUT, 0, b"0"), (OUT, 3, b"1"), (LETTERS, 7, b"2")]
    polls = [Polled(LAST, *each) for each in lasting]
    polls += [Polled(EARLY, OUT, 0, b"0"), Polled(EARLY, OUT, 3, b"1")]
    return History(
        sends=(*sends, Sent("p", IN, b"unknown", None)),
        polls=tuple(polls),
        committed={IN: 3},
        fates=frozenset({OUT.topic, LETTERS.topic}),
        reads_all=LAST,
    )


def without(history: History, *marks: bytes, topic: str) -> History:
    kept = [p for p in history.polls if p.mark not in marks or p.log.topic != topic]
    return history._replace(polls=tuple(kept))


def with_polls(history: History, *polls: Polled) -> History:
    return history._replace(polls=history.polls + polls)


PLANTED: dict[str, Callable[[History], History]] = {
    "lost writes": lambda good: without(good, b"1", topic="in"),
    "lost fates": lambda good: without(good, b"2", topic="in.dlq"),
    "torn transactions": lambda good: good._replace(committed={IN: 2}),
    "duplicates": lambda good: with_polls(good, Polled(LAST, LETTERS, 9, b"0")),
    "aborted reads": lambda good: with_polls(good, Polled(EARLY, OUT, 5, b"2")),
    "divergent values": lambda good: with_polls(good, Polled(LAST, OUT, 0, b"1")),
    "reordered sends": lambda good: good._replace(sends=good.sends[::-1]),
    "reordered polls": lambda good: with_polls(good, Polled(EARLY, OUT, 0, b"0")),
    "skipped polls": lambda good: with_polls(
        good, Polled("hasty", IN, 0, b"0"), Polled("hasty", IN, 2, b"2")
    ),
}


def test_a_history_without_an_anomaly_has_none() -> None:
    assert anomalies(good()) == []


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_finds_what_was_planted_for_it(name: str) -> None:
    assert list(CHECKS[name](PLANTED[name](good())))
    assert not list(CHECKS[name](good()))


def test_a_copy_at_another_place_of_one_topic_is_a_duplicate() -> None:
    copied = with_polls(good(), Polled(LAST, OUT, 8, b"1"))
    assert [each.name for each in anomalies(copied)] == ["duplicates"]


def test_what_nobody_sent_is_an_aborted_read_though_it_lasts() -> None:
    strange = with_polls(good(), Polled(LAST, OUT, 9, b"whose"))
    assert [each.name for each in anomalies(strange)] == ["aborted reads"]


def test_a_send_without_an_answer_may_be_there_or_not() -> None:
    polls = Polled(LAST, IN, 3, b"unknown"), Polled(LAST, OUT, 9, b"unknown")
    assert anomalies(with_polls(good(), *polls)) == []
