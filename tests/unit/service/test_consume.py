"""What a consume brings becomes slices, and headers become claims."""

import pytest
from confluent_kafka import KafkaError, Message

from ringfence.headers import Reason
from service.consume import NO_CLAIM, Claim, batch_of, read_claim, read_headers
from service.rejection import RejectedError
from state.edit import Source
from tests.unit.service.deciding import NOW_MS, SOURCE, World, record


@pytest.mark.parametrize(
    ("headers", "claim"),
    [
        ([], NO_CLAIM),
        ([("other", b"1")], NO_CLAIM),
        ([("_DUPL_ID", None)], NO_CLAIM),
        ([("_DUPL_ID", b"")], Claim(b"", None)),
        ([("_DUPL_ID", None), ("_DUPL_ID", b"1"), ("_DUPL_ID", b"2")], Claim(b"1", None)),
        ([("_HQ_DUPL_ID", b"1"), ("_DUPL_ID", b"1")], Claim(b"1", None)),
        ([("_AMQ_DUPL_ID", b"1")], Claim(b"1", None)),
        ([("_dupl_id", b"1")], NO_CLAIM),
        ([("_DUPL_ID", b"x" * 65_536)], Claim(b"x" * 65_536, None)),
        ([("_EXPIRES_AT", b"0")], Claim(None, 0)),
        ([("_EXPIRES_AT", b"17"), ("_EXPIRES_AT", b"bad")], Claim(None, 17)),
    ],
    ids=[
        "none",
        "others",
        "null is absent",
        "the empty id",
        "the first counts",
        "aliases agree",
        "an alias",
        "names have a case",
        "64 KiB",
        "an expiry",
        "the first expiry counts",
    ],
)
def test_the_headers_claim(headers: list[tuple[str, bytes | None]], claim: Claim) -> None:
    assert read_claim(headers) == claim


@pytest.mark.parametrize(
    "headers",
    [
        [("_DUPL_ID", b"1"), ("_HQ_DUPL_ID", b"2")],
        [("_DUPL_ID", b""), ("_AMQ_DUPL_ID", b"1")],
        [("_DUPL_ID", b"x" * 65_537)],
    ]
    + [[("_EXPIRES_AT", text)] for text in (b"", b"-1", b"1.5", b" 1", b"1\n", b"9" * 19)]
    + [[("_EXPIRES_AT", "\u0661".encode())]],
    ids=[
        "aliases disagree",
        "the empty one too",
        "too long",
        "no time",
        "negative",
        "a fraction",
        "a space",
        "a line end",
        "too many digits",
        "other digits",
    ],
)
def test_an_invalid_claim_is_refused(headers: list[tuple[str, bytes | None]]) -> None:
    with pytest.raises(RejectedError) as caught:
        read_claim(headers)
    assert caught.value.reason is Reason.INVALID_CLAIM


def test_headers_keep_order_repeats_nulls_and_bytes() -> None:
    headers = [("b", b"\xff"), ("a", None), ("b", b"")]
    assert list(read_headers(record(0, *headers))) == headers
    assert list(read_headers(record(0))) == []


def test_slices_hold_the_new_records_of_running_partitions_in_order() -> None:
    partition = World().partition
    partition.next_offset = 5
    stranger = Message(topic="other", partition=0, offset=9)
    messages = [record(4), record(5), stranger, record(8), record(9)]
    batch = batch_of(messages, {SOURCE: partition}, NOW_MS)
    assert [[m.offset() for m in part.messages] for part in batch.slices] == [[5, 8, 9]]
    assert batch.errors == ()


def test_a_partition_without_new_records_has_no_slice() -> None:
    partition = World().partition
    partition.next_offset = 5
    assert batch_of([record(4)], {SOURCE: partition}, NOW_MS).slices == ()


def test_errors_are_kept_apart_with_the_partition_they_name() -> None:
    lost = KafkaError(KafkaError._AUTO_OFFSET_RESET)
    everywhere = KafkaError(KafkaError._ALL_BROKERS_DOWN)
    messages = [Message(topic="orders", partition=1, error=lost), Message(error=everywhere)]
    batch = batch_of(messages, {SOURCE: World().partition}, NOW_MS)
    assert batch.slices == ()
    assert batch.errors == ((lost, Source("orders", 1)), (everywhere, None))
