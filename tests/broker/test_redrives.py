"""Redrives on a real broker, of a service that is killed: none is lost, and none is doubled."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from ringfence.headers import DeadLetter
from tests.broker.letters_world import Letters
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

MANY: Final = 100_000
SOME: Final = 2_000
RATE: Final = 100


@pytest.fixture
def new_letters(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[Callable[..., Letters]]:
    made: list[Letters] = []

    def make(count: int, scope: str = "partition") -> Letters:
        """A service that has refused so many records, because their ids came twice."""
        own = Letters(broker.client_properties, tmp_path, topic_name("redrive"), scope)
        made.append(own)
        own.send(0, count, "first")
        own.send(0, count, "again")
        own.start()
        own.wait_letters(count)
        return own

    yield make
    for each in made:
        each.__exit__(None, None, None)


@pytest.fixture
def letters(new_letters: Callable[..., Letters]) -> Letters:
    """With some dead letters."""
    return new_letters(SOME)


def killed_twice(letters: Letters, name: str, count: int) -> None:
    """See a redrive to its end, through two deaths of the service on the way."""
    for wanted in (count // 3, count // 2):
        letters.until(partial(letters.has_sent, name, wanted))
        letters.kill()
        letters.start()
    job = letters.wait_job(name)
    assert job["progress"]["matched"] == count
    assert job["progress"]["sent"] == count


def after(time_text: str) -> str:
    """A moment later than a time that a dead letter bears."""
    return (datetime.fromisoformat(time_text) + timedelta(milliseconds=1)).isoformat()


def newest_time(letters: Letters) -> str:
    """When the last decision was made."""
    page = letters.told("/v1/dead-letters?newest=true&page_size=1000")
    return max(str(each["time"]) for each in page["dead_letters"])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scope", ["partition", "address"])
def test_a_hundred_thousand_letters_are_redriven_in_each_mode_once_whatever_dies(
    new_letters: Callable[..., Letters], scope: str
) -> None:
    letters = new_letters(MANY, scope)
    # Those that the first redrive refuses again are dead letters of a later time.
    until = after(newest_time(letters))
    refused = Counter(f"again-{number}".encode() for number in range(MANY))
    accepted = Counter(f"first-{number}".encode() for number in range(MANY))
    for mode in ("through", "bypass", "forget"):
        began_s = time.monotonic()
        name = letters.redrive(mode=mode, filter={"to": until})
        killed_twice(letters, name, MANY)
        print(f"{scope}, {mode}: {MANY} letters in {time.monotonic() - began_s:.0f} s, two deaths")
    assert letters.values(letters.output) == accepted + refused + refused
    again = [each for each in letters.read(letters.letters) if DeadLetter.REDRIVES in each.told]
    assert Counter(each.value for each in again) == refused
    assert {each.told[DeadLetter.REDRIVES] for each in again} == {"1"}
    letters.send(0, 1_000, "later")  # all of them are remembered still, by whatever mode
    letters.wait_letters(1_000)
    assert letters.values(letters.output) == accepted + refused + refused


def test_a_letter_goes_out_as_its_record_came_in(letters: Letters) -> None:
    letters.wait_job(letters.redrive(mode="bypass", limit=10))
    came = {each.value: each for each in letters.read(letters.input)}
    went = [each for each in letters.read(letters.output) if (each.value or b"")[:5] == b"again"]
    assert len(went) == 10
    for each in went:
        assert each == came[each.value]


def test_the_rate_is_kept(letters: Letters) -> None:
    rates: list[float] = []
    # What else runs on the machine may hold one up for a second: how near it comes is printed.
    while not any(rate == pytest.approx(RATE, rel=0.05) for rate in rates) and len(rates) < 3:
        rates.append(rate_of_a_redrive(letters))
    print(f"{', '.join(f'{rate:.1f}' for rate in rates)} a second of {RATE}")


def rate_of_a_redrive(letters: Letters) -> float:
    """Begin one with a rate and see it to its end; how many it sent a second, seen on its way."""
    count, began_s = 10 * RATE, time.monotonic()
    name = letters.redrive(mode="bypass", max_per_second=RATE, limit=count)

    def passed(wanted: int) -> tuple[float, int, float]:
        letters.until(partial(letters.has_sent, name, wanted))
        before_s = time.monotonic()
        return before_s, letters.job(name)["progress"]["sent"], time.monotonic()

    (first_s, first, _), (_, last, last_s) = passed(count // 10), passed(count - count // 10)
    job = letters.wait_job(name)
    assert job["progress"]["sent"] == count
    assert count / (time.monotonic() - began_s) <= RATE * 1.05, "the rate is a limit"
    reserve = RATE
    assert last - first <= RATE * 1.05 * (last_s - first_s) + reserve
    return float(last - first) / (last_s - first_s)


def test_a_redrive_that_is_cancelled_sends_no_more_and_can_be_begun_again(
    letters: Letters,
) -> None:
    name = letters.redrive(mode="forget", max_per_second=200, reason="by mistake")
    letters.until(partial(letters.has_sent, name, 100))
    status, told = letters.ask(f"/v1/redrives/{name}:cancel", method="POST")
    assert (status, told["state"]) == (200, "cancelled")
    letters.until(lambda: letters.marks() == 0)
    sent = letters.job(name)["progress"]["sent"]
    assert 100 <= sent < SOME
    assert letters.values(letters.output).total() == SOME + sent
    rest = letters.redrive(mode="forget")
    assert letters.wait_job(rest)["progress"]["accepted"] == SOME
    assert letters.values(letters.output).total() == 2 * SOME + sent


def test_named_letters_are_redriven_and_no_others(letters: Letters) -> None:
    page = letters.told("/v1/dead-letters?page_size=1000&newest=true")["dead_letters"]
    chosen = [
        {"topic": each["topic"], "partition": each["partition"], "offset": each["offset"]}
        for each in (*page[::300], page[1])
    ]
    job = letters.wait_job(letters.redrive(mode="bypass", letters=chosen))
    assert job["progress"]["sent"] == job["progress"]["scanned"] == len(chosen)
    wanted = {(each["partition"], each["offset"]) for each in chosen}
    sources = {
        f"again-{each['source']['offset']}-{each['partition']}"
        for each in page
        if (each["partition"], each["offset"]) in wanted
    }
    assert letters.values(letters.output).total() == SOME + len(sources)
    beyond = {**chosen[0], "offset": 10**9}
    assert letters.ask("/v1/redrives", {"mode": "bypass", "letters": [beyond]})[0] == 422


def test_letters_are_found_by_time_address_header_and_key(letters: Letters) -> None:
    until = after(newest_time(letters))
    for kind, count in (("third", 20), ("fourth", 5)):
        letters.send(0, count, kind)
    letters.wait_letters(SOME + 25)
    count_of = letters.counted
    assert count_of(f"from={quoted(until)}") == 25
    assert count_of(f"to={quoted(until)}") == SOME
    assert count_of(f"from={quoted(until)}&address=a0") == 3 + 1
    assert count_of("key=k7") == 1 + 1
    assert count_of("header._DUPL_ID=id-3&header.addr=twice") == 1 + 2
    assert count_of("reason=expired") == 0
    newest = letters.told("/v1/dead-letters?newest=true&page_size=5")["dead_letters"]
    times = [each["time"] for each in newest]
    assert times == sorted(times, reverse=True)
    assert all(each["time"] >= until.replace("+00:00", "Z") for each in newest)


@pytest.mark.parametrize("newest", ["false", "true"])
def test_pages_give_each_letter_once(letters: Letters, newest: str) -> None:
    found, token = Counter[tuple[int, int]](), ""
    while True:
        page = letters.told(f"/v1/dead-letters?newest={newest}&page_size=300&page_token={token}")
        here = [(each["partition"], each["offset"]) for each in page["dead_letters"]]
        found.update(here)
        for number in range(4):
            offsets = [offset for partition, offset in here if partition == number]
            assert offsets == sorted(offsets, reverse=newest == "true")
        token = page["next_page_token"]
        if token is None:
            break
    assert found.total() == len(found) == SOME


def test_a_foreign_record_breaks_nothing_and_is_skipped(letters: Letters) -> None:
    producer = Producer(letters.client)
    odd: list[list[tuple[str, str | bytes | None]]] = [
        [],
        [("ringfence.reason", b"\xff")],
        [("a", None)],
    ]
    for number, headers in enumerate(odd):
        producer.produce(letters.letters, value=None, headers=headers, partition=number)
    assert producer.flush(20) == 0
    summary = letters.told("/v1/dead-letters:summary")
    assert (summary["foreign"], summary["dead_letters"]) == (3, SOME)
    job = letters.wait_job(letters.redrive(mode="bypass"))
    assert job["progress"]["skipped"] == {"foreign": 3}
    assert job["progress"]["sent"] == SOME


def test_no_other_topic_is_shown(letters: Letters) -> None:
    assert letters.ask(f"/v1/dead-letters/{letters.input}/0/0")[0] == 404
    assert letters.ask(f"/v1/dead-letters?topic={letters.input}")[0] == 422
    order = {"mode": "bypass", "topics": [letters.output]}
    assert letters.ask("/v1/redrives", order)[0] == 422


def quoted(time_text: str) -> str:
    """As it stands in a query."""
    return time_text.replace("+", "%2B")
