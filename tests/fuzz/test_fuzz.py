"""Whatever is sent, under whatever configuration: no process ends, and each record has one fate.

`RINGFENCE_FUZZ_RECORDS` says how many records are sent, `RINGFENCE_SEED` which scene is played
again.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from confluent_kafka import Message
from structlog.testing import capture_logs

from ringfence_client.headers import (
    BOOKMARK,
    DUPLICATE_ID,
    GROUP,
    MARK,
    REPEATED,
    REPLY_TO,
    Headers,
    Reason,
)
from ringfence_service.dedup import batch as consume
from ringfence_service.dedup.address import AddressContext
from ringfence_service.dedup.checks import Checks
from ringfence_service.dedup.evaluator import Evaluator
from ringfence_service.dedup.output import OutputResolver, OutputTopic
from ringfence_service.dedup.record import Record as Read
from ringfence_service.dedup.record import source_of
from ringfence_service.kafka import io
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import Claim
from tests.fakes.partition import Record
from tests.fuzz.records import NOT_TEXT, REPLIES, UNFORESEEN, number_of, told
from tests.fuzz.scene import Scene, place_of
from tests.support.helpers import some

RECORDS: Final = int(os.environ.get("RINGFENCE_FUZZ_RECORDS") or 3_000)
SEED: Final = os.environ.get("RINGFENCE_SEED")
OF_A_SCENE: Final = 100
FIRST: Final = int(os.environ.get("RINGFENCE_FIRST_SEED") or 0)
SEEDS: Final = [int(SEED)] if SEED else range(FIRST, FIRST + RECORDS // OF_A_SCENE)
FAILING: Final = ("IndexError: by intent", "KeyError: 'by intent'", "RecursionError: by intent")
"""What the checks of some records are made to raise."""
WAITS: Final = "waits"
ADDED: Final = {DUPLICATE_ID, BOOKMARK, MARK}
"""What an output may have behind the headers that came."""


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fakes cannot do: names that are not text, and checks that fail as nobody foresaw."""
    read = io.read_headers

    def read_headers(messages: Sequence[Message]) -> list[Headers | None]:
        return [
            UNREADABLE if any(name == NOT_TEXT for name, _ in headers or ()) else headers
            for headers in read(messages)
        ]

    monkeypatch.setattr(consume, "read_headers", read_headers)
    plain_ids, claim, check_fits = Evaluator._plain_ids, Checks.claim, OutputResolver.check_fits

    def failing_ids(
        desk: Evaluator, messages: Sequence[Message], column: Sequence[Headers | None]
    ) -> list[bytes | None]:
        for headers in column:
            fail(headers, b"at once", IndexError("by intent"))
        return plain_ids(desk, messages, column)

    def failing_claim(
        checks: Checks, record: Read, headers: Headers, place: AddressContext
    ) -> Claim:
        fail(headers, b"claim", KeyError("by intent"))
        return claim(checks, record, headers, place)

    def failing_size(
        output_resolver: OutputResolver,
        target: OutputTopic,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        *times: Any,
    ) -> None:
        fail(headers, b"size", RecursionError("by intent"))
        check_fits(output_resolver, target, key, value, headers, *times)

    monkeypatch.setattr(Evaluator, "_plain_ids", failing_ids)
    monkeypatch.setattr(Checks, "claim", failing_claim)
    monkeypatch.setattr(OutputResolver, "check_fits", failing_size)


def fail(headers: Headers | None, how: bytes, error: Exception) -> None:
    if (UNFORESEEN, how) in (headers or ()):
        raise error


@pytest.mark.row(22)
@pytest.mark.row(23)
@pytest.mark.row(33)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_ends_the_process_and_each_has_one_fate(seed: int) -> None:
    scene = Scene(seed)
    with capture_logs():
        scene.run(OF_A_SCENE, 10)
    fates, outcomes = Counter[int](), dict[int, str]()
    records = {
        number_of(record.value, record.timestamp_ms): record
        for sent in scene.sent.values()
        for record in sent
    }
    assert len(records) == OF_A_SCENE
    marked = 0
    for output in scene.outputs():
        number = number_of(output.value, output.timestamp_ms)
        is_repeated = is_marked(records[number], output)
        marked += is_repeated
        outcomes[number] = "duplicate" if is_repeated else "accepted"
        fates[number] += 1
    for letter in scene.letters():
        source, offset = place_of(letter)
        number = scene.number_of(source, offset)
        check_letter(records[number], letter)
        outcomes[number] = told(letter.headers)["reason"]
        fates[number] += 1
    for source, offset in scene.waiting():
        outcomes[scene.number_of(source, offset)] = WAITS
        fates[scene.number_of(source, offset)] += 1
    assert {number for number, count in fates.items() if count > 1} == set()
    assert len(records) - len(fates) == scene.dropped() - marked, "the others were dropped"
    check_replies(scene, records, outcomes)


def check_replies(scene: Scene, records: Mapping[int, Record], outcomes: Mapping[int, str]) -> None:
    """Each says what became of a record that asked for it there, and none is missing."""
    asked = {number: asked_on(record) for number, record in records.items()}
    given = Counter[int]()
    for topic in REPLIES:
        for reply in scene.replies_on(topic):
            payload = json.loads(reply.value or b"")
            place, _, offset = payload["record"].rpartition("@")
            number = scene.number_of(some(source_of(place.encode())), int(offset))
            given[number] += 1
            assert asked[number] == topic
            outcome = payload["reason"] if payload["outcome"] == "refused" else payload["outcome"]
            if number in outcomes:
                assert outcome == outcomes[number]
            else:
                assert outcome in REPEATED, "it was dropped"
    assert set(given.values()) <= {1}
    unreplied = {number for number, topic in asked.items() if topic == REPLIES[0]} - given.keys()
    if scene.replies:
        places = [place_of(letter) for letter in scene.letters_of_fallback()]
        unreplied -= {scene.number_of(*place) for place in places}
        # A reply that the broker refuses takes those of its group along.
        unreplied = {n for n in unreplied if GROUP not in dict(records[n].headers or [])}
        silent = {Reason.UNREADABLE_HEADERS, WAITS}
        assert {n for n in unreplied if outcomes.get(n) not in silent} == set()
    else:
        assert not given


def asked_on(record: Record) -> str | None:
    """The topic that a record names for its reply."""
    named = (value for name, value in record.headers or [] if name == REPLY_TO)
    topic = next((value for value in named if value is not None), b"")
    return topic.decode(errors="replace") or None


def is_marked(record: Record, output: Record) -> bool:
    """Whether it went out as a duplicate; it is as it came but for what is added."""
    came = record.headers or []
    assert (output.key, output.value) == (record.key, record.value)
    assert (output.headers or [])[: len(came)] == came
    if record.timestamp_ms > 0:
        assert output.timestamp_ms == record.timestamp_ms
    added = [name for name, _ in (output.headers or [])[len(came) :]]
    assert len(added) == len(set(added))
    assert set(added) <= ADDED
    return MARK in added


def check_letter(record: Record, letter: Record) -> None:
    """It is as it came, and says why it is here."""
    ours = told(letter.headers)
    came = [] if ours["reason"] == Reason.UNREADABLE_HEADERS else record.headers or []
    assert (letter.key, letter.value) == (record.key, record.value)
    assert (letter.headers or [])[: len(came)] == came
    assert ours["reason"] in set(Reason)
    assert ours["cause"]
    if ours["reason"] == Reason.FAILED_CHECK:
        assert any(name in ours["cause"] for name in FAILING), "a check fails of itself"
