"""Whatever is sent, under whatever configuration: no process ends, and each record has one fate.

`RINGFENCE_FUZZ_RECORDS` says how many records are sent, `RINGFENCE_SEED` which scene is played
again.
"""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from confluent_kafka import Message
from structlog.testing import capture_logs

from ringfence.headers import BOOKMARK, DUPLICATE_ID, MARK, Headers, Reason
from service.dedup import batch as consume
from service.dedup.address import AddressContext
from service.dedup.checks import Checks
from service.dedup.evaluator import Evaluator
from service.dedup.output import OutputResolver, OutputTopic
from service.dedup.record import Record as Read
from service.kafka import io
from state.model import Claim
from tests.fakes.partition import Record
from tests.fuzz.records import NOT_TEXT, UNFORESEEN, number_of, told
from tests.fuzz.scene import Scene, place_of

RECORDS: Final = int(os.environ.get("RINGFENCE_FUZZ_RECORDS") or 3_000)
SEED: Final = os.environ.get("RINGFENCE_SEED")
OF_A_SCENE: Final = 100
FIRST: Final = int(os.environ.get("RINGFENCE_FIRST_SEED") or 0)
SEEDS: Final = [int(SEED)] if SEED else range(FIRST, FIRST + RECORDS // OF_A_SCENE)
FAILING: Final = ("IndexError: by intent", "KeyError: 'by intent'", "RecursionError: by intent")
"""What the checks of some records are made to raise."""
ADDED: Final = {DUPLICATE_ID, BOOKMARK, MARK}
"""What an output may have behind the headers that came."""


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fakes cannot do: names that are not text, and checks that fail as nobody foresaw."""
    read = io.read_headers

    def read_headers(messages: Sequence[Message]) -> list[Headers | None]:
        return [
            io.UNREADABLE if any(name == NOT_TEXT for name, _ in headers or ()) else headers
            for headers in read(messages)
        ]

    monkeypatch.setattr(consume, "read_headers", read_headers)
    plain_ids, claim, check_size = Evaluator._plain_ids, Checks.claim, OutputResolver.check_size

    def failing_ids(
        desk: Evaluator, messages: Sequence[Message], column: Sequence[Headers | None]
    ) -> Sequence[bytes | None]:
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
    ) -> None:
        fail(headers, b"size", RecursionError("by intent"))
        check_size(output_resolver, target, key, value, headers)

    monkeypatch.setattr(Evaluator, "_plain_ids", failing_ids)
    monkeypatch.setattr(Checks, "claim", failing_claim)
    monkeypatch.setattr(OutputResolver, "check_size", failing_size)


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
    fates = Counter[int]()
    records = {
        number_of(record.value, record.timestamp_ms): record
        for sent in scene.sent.values()
        for record in sent
    }
    assert len(records) == OF_A_SCENE
    marked = 0
    for output in scene.outputs():
        number = number_of(output.value, output.timestamp_ms)
        marked += is_marked(records[number], output)
        fates[number] += 1
    for letter in scene.letters():
        source, offset = place_of(letter)
        number = scene.number_of(source, offset)
        check_letter(records[number], letter)
        fates[number] += 1
    for source, offset in scene.waiting():
        fates[scene.number_of(source, offset)] += 1
    assert {number for number, count in fates.items() if count > 1} == set()
    assert len(records) - len(fates) == scene.dropped() - marked, "the others were dropped"


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
