"""Blame: an exception that nobody foresaw is one record's, and nothing else suffers for it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, DeadLetter, Headers
from ringfence_service.dedup import checks as checks_module
from ringfence_service.dedup.address import AddressContext
from ringfence_service.dedup.claim import plain_ids, read_claim, read_membership
from ringfence_service.dedup.dead_letter import DeadLetterEnvelope
from ringfence_service.dedup.record import Record
from ringfence_service.dedup.refusal_trace import UndecidedError
from ringfence_service.dedup.route import InputPartition
from ringfence_state.keys import UnknownFormatError
from ringfence_state.model import Claim, Origin, PartitionId, Rejection
from ringfence_state.store import StoreCorruptError
from ringfence_state.strategies.base import StateChange
from ringfence_state.strategies.ring import RingDraft
from tests.loop.test_two_hops import Hops
from tests.support.deciding import World, named
from tests.support.helpers import some
from tests.support.living import Living, in_group, turns

FORESEEN_BY_NOBODY = LookupError("nobody foresaw \udc80 this")
POISON = b"poison"
LATER = b"99999999999999"

Header = tuple[str, bytes | None]


def raise_for(headers: Headers, error: Exception = FORESEEN_BY_NOBODY) -> None:
    if any(value == POISON for _, value in headers):
        raise error


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[EventDict]]:
    """What was logged."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
def poisonous(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever claims this id, its claim cannot be read."""

    def read(headers: Headers, *rest: frozenset[str]) -> Claim:
        raise_for(headers)
        return read_claim(headers, *rest)

    monkeypatch.setattr("ringfence_service.dedup.claim.read_claim", read)


def write(living: Living, value: bytes, *headers: Header, partition: int = 0) -> None:
    """A record that is not plain, so that every check looks at it."""
    living.write(value, (EXPIRES_AT, LATER), *headers, partition=partition)


def send(living: Living, *ids: str) -> None:
    for name in ids:
        write(living, name.encode(), (DUPLICATE_ID, name.encode()))


def send_member(living: Living, identifier: str, position: int, size: int, **rest: int) -> None:
    name = identifier.encode()
    write(living, name, *in_group("t", position, size), (DUPLICATE_ID, name), **rest)


def letters(living: Living, topic: str = "orders.dlq") -> list[dict[str, str]]:
    return [
        {name.removeprefix("ringfence."): (value or b"").decode() for name, value in headers}
        for headers in (record.headers or [] for record in living.cluster.records(topic))
    ]


@pytest.mark.row(33)
@pytest.mark.usefixtures("poisonous")
def test_the_one_record_is_found_and_dead_lettered_and_the_others_get_through() -> None:
    living = Living()
    send(living, *"abcd", "poison", *"efg")
    turns(living.running(), 40)
    assert living.values("orders.unique") == list("abcdefg")
    (letter,) = letters(living)
    assert letter["reason"] == "failed-check"
    assert letter["cause"] == "its checks failed with LookupError: nobody foresaw \\udc80 this"
    assert (letter["offset"], letter["_DUPL_ID"]) == ("4", "poison")
    committed = some(living.committed())
    assert committed >= 8


@pytest.mark.usefixtures("poisonous")
def test_every_record_that_fails_is_found() -> None:
    living = Living(batch_records_max=8)
    send(living, "poison", "a", "poison", "poison", *"bcdef", "poison")
    turns(living.running(), 100)
    assert living.values("orders.unique") == list("abcdef")
    assert [letter["offset"] for letter in letters(living)] == ["0", "2", "3", "9"]


def test_no_record_is_blamed_for_what_a_failed_one_has_left_in_a_draft(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine, tainted = checks_module.Checks.pass_on, list[object]()

    def pass_on(
        checks: checks_module.Checks, context: AddressContext, record: Record, *rest: Any
    ) -> bool:
        if any(context.draft is each for each in tainted):
            raise KeyError(record.value())
        if record.value() == POISON:
            tainted.append(context.draft)
            raise FORESEEN_BY_NOBODY
        return genuine(checks, context, record, *rest)

    monkeypatch.setattr(checks_module.Checks, "pass_on", pass_on)
    living = Living(batch_records_max=20)
    send(living, "a", "poison", *"bcd", "poison", "e")
    turns(living.running(), 10)
    assert living.values("orders.unique") == list("abcde")
    assert living.values("orders.dlq") == ["poison", "poison"]


@pytest.mark.usefixtures("poisonous")
def test_of_many_records_that_fail_one_is_logged_for_each_attempt(logged: list[EventDict]) -> None:
    living = Living()
    send(living, *["poison"] * 50)
    turns(living.running(), 10)
    assert len(living.values("orders.dlq")) == 50
    assert sum(line["event"] == "record_not_decided" for line in logged) == 2


@pytest.mark.usefixtures("poisonous")
def test_what_was_raised_is_logged_with_its_traceback(logged: list[EventDict]) -> None:
    living = Living()
    send(living, "poison")
    turns(living.running(), 5)
    (line,) = [line for line in logged if line["event"] == "record_not_decided"]
    assert (line["log_level"], line["exc_info"]) == ("error", FORESEEN_BY_NOBODY)


def test_what_was_raised_keeps_no_frames_alive_while_its_transaction_is_aborted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ringfence_service.dedup.evaluator.plain_ids", always(FORESEEN_BY_NOBODY))
    with pytest.raises(UndecidedError) as undecided:
        World().decide(named(0, b"a"))
    assert undecided.value.fault.raised is FORESEEN_BY_NOBODY
    assert FORESEEN_BY_NOBODY.__traceback__ is None


def test_a_record_that_fails_before_any_check_is_found_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ids(column: list[Headers], *rest: frozenset[str]) -> list[bytes | None]:
        for headers in column:
            raise_for(headers or [])
        return plain_ids(column, *rest)

    monkeypatch.setattr("ringfence_service.dedup.evaluator.plain_ids", ids)
    living = Living()
    living.send("a", "poison", "b")
    turns(living.running(), 20)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.reasons("orders.dlq") == ["failed-check"]


def test_a_record_that_cannot_be_remembered_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = RingDraft.change

    def change(draft: RingDraft, address: str) -> StateChange | None:
        found = genuine(draft, address)
        for edit in [] if found is None else found.edits:
            raise_for([("", POISON)] if POISON in (edit.value or b"") else [])
        return found

    monkeypatch.setattr(RingDraft, "change", change)
    living = Living()
    living.send("a", "poison", "b")
    turns(living.running(), 20)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.reasons("orders.dlq") == ["failed-check"]


@pytest.mark.usefixtures("poisonous")
def test_its_id_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    send(living, "poison")
    loop = living.running()
    turns(loop, 5)
    monkeypatch.undo()
    send(living, "poison")
    turns(loop, 5)
    assert living.values("orders.unique") == ["poison"]


@pytest.mark.usefixtures("poisonous")
def test_one_that_its_dead_letter_topic_refuses_ends_in_the_fallback() -> None:
    living = Living()
    living.cluster.create_topic("orders.dlq", limit_bytes=500)
    write(living, bytes(600), (DUPLICATE_ID, POISON))
    send(living, "a")
    turns(living.running(), 20)
    assert living.values("orders.unique") == ["a"]
    assert living.reasons("g.dead-letters") == ["failed-check"]


# Transaction groups.


def test_a_group_that_cannot_be_decided_is_dead_lettered_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = RingDraft.verdicts

    def verdicts(
        draft: RingDraft, claims: Sequence[Claim], at: Sequence[Origin]
    ) -> list[Rejection | None]:
        raise_for([("", claim.identifier) for claim in claims])
        return genuine(draft, claims, at)

    monkeypatch.setattr(RingDraft, "verdicts", verdicts)
    living = Living()
    send_member(living, "a", 1, 3)
    send_member(living, "poison", 2, 3)
    loop = living.running()
    send_member(living, "b", 3, 3)
    send(living, "c")
    turns(loop, 20)
    assert living.values("orders.unique") == ["c"]
    assert living.reasons("orders.dlq") == ["failed-check"] * 3
    assert sorted(living.values("orders.dlq")) == ["a", "b", "poison"]
    causes = {letter["_DUPL_ID"]: letter["cause"] for letter in letters(living)}
    assert "completes its group is orders-0@2" in causes["a"]
    assert not any(each.groups.open for each in loop.assignment.running.values())


@pytest.mark.parametrize("waiting", [0, 1, 2])
def test_a_group_is_kept_whose_record_fails_while_others_are_missing(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, members = Living(), [("a", 1, 3), ("b", 2, 3), ("c", 3, 3)]
    for member in members[:waiting]:
        send_member(living, *member)
    loop = living.running()

    def unkeepable(*_: object) -> None:
        raise OverflowError("too much")

    with monkeypatch.context() as patch:
        patch.setattr("ringfence_service.dedup.pending_groups.encode", unkeepable)
        send_member(living, "poison", 2, 3)
        turns(loop, 5)
    assert living.reasons("orders.dlq") == ["failed-check"]
    for member in members[waiting:]:
        send_member(living, *member)
    turns(loop, 5)
    assert living.values("orders.unique") == ["a", "b", "c"]


def test_a_record_whose_group_cannot_be_read_is_dead_lettered_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def membership(headers: Headers) -> object:
        raise_for(headers)
        return read_membership(headers)

    monkeypatch.setattr("ringfence_service.dedup.evaluator.read_membership", membership)
    living = Living()
    send_member(living, "a", 1, 2)
    send_member(living, "poison", 2, 2)
    loop = living.running()
    turns(loop, 10)
    assert living.values("orders.dlq") == ["poison"]
    send_member(living, "b", 2, 2)
    turns(loop, 5)
    assert living.values("orders.unique") == ["a", "b"]


# The first hop.


def test_one_that_cannot_be_carried_is_dead_lettered_and_the_others_are_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = InputPartition.address

    def address(input_partition: InputPartition, record: Record, headers: Headers) -> str:
        raise_for(headers)
        return genuine(input_partition, record, headers)

    monkeypatch.setattr(InputPartition, "address", address)
    hops = Hops()
    for identifier in (b"a", POISON, b"b"):
        hops.send(0, identifier, identifier)
    hops.turns(20)
    assert [record.value for record in hops.out("orders.unique")] == [b"a", b"b"]
    (letter,) = hops.out("orders.dlq")
    assert dict(letter.headers or [])[DeadLetter.REASON] == b"failed-check"


@pytest.mark.usefixtures("poisonous")
def test_one_that_was_carried_is_dead_lettered_with_its_place_in_the_input() -> None:
    hops = Hops()
    hops.send(0, b"k", b"first")
    for identifier in (b"a", POISON, b"b"):
        headers = ((EXPIRES_AT, LATER), (DUPLICATE_ID, identifier))
        hops.living.write(identifier, *headers, key=b"k", partition=1)
    hops.turns(20)
    assert [record.value for record in hops.out("orders.unique")] == [b"first", b"a", b"b"]
    (letter,) = hops.out("orders.dlq")
    told = dict(letter.headers or [])
    assert told[DeadLetter.REASON] == b"failed-check"
    assert (told[DeadLetter.PARTITION], told[DeadLetter.OFFSET]) == (b"1", b"1")


# What is no record's.


def always(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    "error",
    [
        AssertionError("a promise"),
        MemoryError(),
        OSError("the disk"),
        UnknownFormatError("format 9"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_world_or_a_promise_breaks_ends_the_life_at_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    living = Living()
    loop = living.running()
    living.send("a", "b")
    monkeypatch.setattr("ringfence_service.dedup.evaluator.plain_ids", always(error))
    with pytest.raises(type(error)):
        loop.turn()
    assert living.values("orders.dlq") == []


def test_a_damaged_store_is_no_records_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    living = Living()
    loop = living.running()
    living.send("a", "b")
    with monkeypatch.context() as patch:
        damaged = StoreCorruptError(PartitionId("orders", 0), "rotten")
        patch.setattr("ringfence_service.dedup.evaluator.plain_ids", always(damaged))
        loop.turn()
    turns(loop)
    assert living.values("orders.unique") == ["a", "b"]


def test_what_is_raised_whatever_is_read_ends_the_life_and_dead_letters_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    loop = living.running()
    living.send(*"abcdefgh")
    monkeypatch.setattr(
        "ringfence_service.dedup.decider.acknowledgements", always(FORESEEN_BY_NOBODY)
    )
    with pytest.raises(LookupError, match="nobody foresaw"):
        turns(loop, 20)
    assert living.values("orders.dlq") == []
    assert living.committed() in {None, 0}


@pytest.mark.usefixtures("poisonous")
def test_what_is_raised_again_by_the_dead_letter_ends_the_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = Living()
    loop = living.running()
    send(living, "poison")
    monkeypatch.setattr(DeadLetterEnvelope, "letter", always(FORESEEN_BY_NOBODY))
    with pytest.raises(LookupError, match="nobody foresaw"):
        turns(loop, 20)
    assert living.committed() in {None, 0}
