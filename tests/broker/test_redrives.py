"""Redrives on a real broker, of a service that is killed: none is lost, and none is doubled."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from ringfence_client.headers import DeadLetter
from tests.broker.letters_world import Letters
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("redrives")]

SOME: Final = 600
RATE: Final = 200


def filled(letters: Letters, count: int) -> Letters:
    """With a service that has refused so many records, because their ids came twice."""
    letters.send(0, count, "first")
    letters.send(0, count, "again")
    letters.service.start()
    letters.wait_letters(count)
    return letters


@pytest.fixture(scope="module")
def letters(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Letters]:
    """Some dead letters, of which each test may redrive what it likes."""
    group, folder = f"redrive-{uuid4().hex[:12]}", tmp_path_factory.mktemp("redrives")
    with Letters(broker.client_properties, folder, group) as own:
        yield filled(own, SOME)


def killed_twice(letters: Letters, name: str, count: int) -> None:
    """See a redrive to its end, through two deaths of the service on the way."""
    for wanted in (count // 3, count // 2):
        letters.until(partial(letters.has_sent, name, wanted))
        letters.service.kill()
        letters.service.start()
    job = letters.wait_job(name)
    assert job["progress"]["matched"] == count
    assert job["progress"]["sent"] == count


def after(time_text: str) -> str:
    """A moment later than a time that a dead letter bears."""
    return (datetime.fromisoformat(time_text) + timedelta(milliseconds=1)).isoformat()


def newest_time(letters: Letters) -> str:
    """When the last decision was made."""
    return max(str(each["time"]) for each in letters.page("newest=true&page_size=1000"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scope", [pytest.param("partition", marks=pytest.mark.long), "address"])
@pytest.mark.parametrize("many", [1_500, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_letters_are_redriven_in_each_mode_once_whatever_dies(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str], many: int, scope: str
) -> None:
    with Letters(broker.client_properties, tmp_path, topic_name("redrive"), scope) as letters:
        filled(letters, many)
        # Those that the first redrive refuses again are dead letters of a later time.
        until = after(newest_time(letters))
        refused = Counter(f"again-{number}".encode() for number in range(many))
        accepted = Counter(f"first-{number}".encode() for number in range(many))
        for mode in ("through", "bypass", "forget"):
            # No faster, so that it is under way when the service dies.
            name = letters.redrive(mode=mode, filter={"to": until}, max_per_second=many // 3)
            killed_twice(letters, name, many)
        assert letters.values(letters.output) == accepted + refused + refused
        again = [each for each in letters.read(letters.letters) if DeadLetter.REDRIVES in each.told]
        assert Counter(each.value for each in again) == refused
        assert {each.told[DeadLetter.REDRIVES] for each in again} == {"1"}
        letters.send(0, 1_000, "later")  # all of them are remembered still, by whatever mode
        letters.wait_letters(1_000)
        assert letters.values(letters.output) == accepted + refused + refused


def test_a_letter_goes_out_as_its_record_came_in(letters: Letters) -> None:
    before = letters.read(letters.output)
    letters.wait_job(letters.redrive(mode="bypass", limit=10))
    came = letters.read(letters.input)
    went = letters.read(letters.output)
    assert len(went) == len(before) + 10
    assert all(each in came for each in went)


def test_a_redrive_that_is_cancelled_sends_no_more_and_can_be_begun_again(
    letters: Letters,
) -> None:
    count, before = letters.summary()["dead_letters"], letters.values(letters.output).total()
    # So slowly that it is under way still when a busy machine has written its end.
    name = letters.redrive(mode="forget", max_per_second=RATE / 10, reason="by mistake")
    letters.until(partial(letters.has_sent, name, 50))
    told = letters.service.told(f"/v1/redrives/{name}:cancel", method="POST")
    assert told["state"] == "cancelled"
    letters.until(lambda: letters.marks() == 0)
    sent = letters.job(name)["progress"]["sent"]
    assert 50 <= sent < count
    assert letters.values(letters.output).total() == before + sent
    rest = letters.redrive(mode="forget")
    assert letters.wait_job(rest)["progress"]["accepted"] == count
    assert letters.values(letters.output).total() == before + sent + count


def test_a_foreign_record_breaks_nothing_and_is_skipped(letters: Letters) -> None:
    count = letters.summary()["dead_letters"]
    producer = Producer(letters.client)
    odd: list[list[tuple[str, str | bytes | None]]] = [
        [],
        [("ringfence.reason", b"\xff")],
        [("a", None)],
    ]
    for number, headers in enumerate(odd):
        producer.produce(letters.letters, value=None, headers=headers, partition=number)
    assert producer.flush(20) == 0
    told = letters.summary()
    assert (told["foreign"], told["dead_letters"]) == (3, count)
    job = letters.wait_job(letters.redrive(mode="bypass"))
    assert job["progress"]["skipped"] == {"foreign": 3}
    assert job["progress"]["sent"] == count
