"""What headers claim."""

import pytest

from ringfence_client.headers import (
    EPOCH,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    REPLY_TO,
    STREAM,
    Headers,
    Reason,
)
from ringfence_service.dedup.claim import (
    NO_ID,
    GroupClaim,
    named,
    plain_ids,
    published,
    read_claim,
    read_epoch,
    read_membership,
    reply_topic,
)
from ringfence_service.dedup.record import RejectedError
from ringfence_service.kafka.model import UNREADABLE
from ringfence_state.model import NO_CLAIM, Claim
from ringfence_state.strategies.per_publisher import NUMBER_HEADERS
from tests.support.helpers import rows


@rows(
    ("headers", "claim"),
    {
        "none": ([], NO_CLAIM),
        "others": ([("other", b"1")], NO_CLAIM),
        "null is absent": ([("_DUPL_ID", None)], NO_CLAIM),
        "the empty id": ([("_DUPL_ID", b"")], Claim(b"", None)),
        "the first counts": (
            [("_DUPL_ID", None), ("_DUPL_ID", b"1"), ("_DUPL_ID", b"2")],
            Claim(b"1", None),
        ),
        "aliases agree": ([("_HQ_DUPL_ID", b"1"), ("_DUPL_ID", b"1")], Claim(b"1", None)),
        "an alias": ([("_AMQ_DUPL_ID", b"1")], Claim(b"1", None)),
        "names have a case": ([("_dupl_id", b"1")], NO_CLAIM),
        "64 KiB": ([("_DUPL_ID", b"x" * 65_536)], Claim(b"x" * 65_536, None)),
        "an expiry": ([("_EXPIRES_AT", b"0")], Claim(None, 0)),
        "the first expiry counts": (
            [("_EXPIRES_AT", b"17"), ("_EXPIRES_AT", b"bad")],
            Claim(None, 17),
        ),
    },
)
def test_the_headers_claim(headers: list[tuple[str, bytes | None]], claim: Claim) -> None:
    assert read_claim(headers) == named(claim, claim.identifier) == claim


@pytest.mark.parametrize(
    ("headers", "identifier"),
    [
        ([("trace", b"t"), ("_DUPL_ID", b"1"), ("trace", None)], b"1"),
        ([("_HQ_DUPL_ID", b"")], b""),
        ([("_DUPL_ID", b"x" * 65_536)], b"x" * 65_536),
        ([("trace", b"t"), ("_DUPL_ID", b"x" * 65_536)], b"x" * 65_536),
        ([("trace", b"t"), ("_DUPL_ID", b"x" * 65_537)], None),
        ([("_DUPL_ID", None), ("_DUPL_ID", b"1")], b"1"),
        ([("_DUPL_ID", b"no/stamp")], b"no/stamp"),
        ([("_DUPL_ID", b"cluster/topic/0/1")], None),  # a stamp, which is kept apart
        (None, NO_ID),
        ([], NO_ID),
        ([("trace", b"t")], NO_ID),
        ([("trace", b"t"), ("trace", b"t")], NO_ID),
        ([("_DUPL_ID", None)], NO_ID),
        (UNREADABLE, None),
        ([("_DUPL_ID", b"1"), ("_DUPL_ID", b"1")], None),
        ([("_DUPL_ID", b"1"), ("_EXPIRES_AT", b"1")], None),
        ([("_EXPIRES_AT", b"1")], None),
        ([("trace", b"t"), ("_EXPIRES_AT", b"1")], None),
        ([("_DUPL_ID", b"x" * 65_537)], None),
    ],
)
def test_a_plain_id_is_all_that_the_headers_claim(
    headers: Headers | None, identifier: bytes | None
) -> None:
    (found,) = plain_ids([headers])
    assert (found is NO_ID) == (identifier is NO_ID)
    assert found == identifier
    if identifier is NO_ID:
        assert read_claim(headers or ()) == NO_CLAIM
    elif identifier is not None:
        assert read_claim(headers or ()) == Claim(identifier, None)


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
    assert caught.value.why.reason is Reason.INVALID_CLAIM


def told_of(headers: Headers) -> object:
    """All that a record says besides its id."""
    return (
        published(NO_CLAIM, headers, NUMBER_HEADERS),
        read_epoch(headers),
        read_membership(headers),
    )


LONGEST, MOST = b"x" * 1024, 2**63 - 1
NAMED = Claim(publisher="P")


@rows(
    ("headers", "told"),
    {
        "nothing": ([(EPOCH, b"1"), (GROUP_SIZE, b"1")], (NO_CLAIM, None, None)),
        "the first that is not null, and nothing of others": (
            [
                *((name, None) for name in (PUBLISHER, NUMBER, EPOCH, GROUP_SIZE)),
                *((PUBLISHER, LONGEST), (NUMBER, b"%d" % MOST), (EPOCH, b"7")),
                *((STREAM, b"0"), (PREVIOUS, b"1"), (GROUP, LONGEST), ("other", b"x")),
                *((GROUP_SIZE, b"2"), (GROUP_POSITION, b"2"), (NUMBER, b"x"), (GROUP_SIZE, b"1")),
            ],
            (
                Claim(publisher="x" * 1024, number=MOST, stream=0, previous=1),
                ("x" * 1024, 7),
                GroupClaim(LONGEST, 2, 2),
            ),
        ),
        "no epoch": ([(PUBLISHER, b"P")], (NAMED, ("P", 0), None)),
        "one of one": (
            [(GROUP, b"g"), (GROUP_SIZE, b"1"), (GROUP_POSITION, b"1")],
            (NO_CLAIM, None, GroupClaim(b"g", 1, 1)),
        ),
    },
)
def test_of_publishers_and_groups_the_headers_tell(headers: Headers, told: object) -> None:
    assert told_of(headers) == told


@pytest.mark.parametrize(
    "headers",
    [
        *([(PUBLISHER, name)] for name in (b"", b"\xff", LONGEST + b"x")),
        *([(NUMBER, text)] for text in (b"", b"-1", b"%d" % (MOST + 1))),
        [(PUBLISHER, b"P"), (EPOCH, b"x")],
        *([(GROUP, b"g"), (given, b"1")] for given in (GROUP_SIZE, GROUP_POSITION)),
        *(
            [(GROUP, name), (GROUP_SIZE, b"1"), (GROUP_POSITION, position)]
            for name, position in ((b"g", b"0"), (b"g", b"2"), (LONGEST + b"x", b"1"))
        ),
    ],
)
def test_what_a_publisher_or_a_group_cannot_say_is_refused(headers: Headers) -> None:
    with pytest.raises(RejectedError) as caught:
        told_of(headers)
    assert caught.value.why.reason is Reason.INVALID_CLAIM


def test_a_reply_goes_to_the_first_topic_that_is_not_null() -> None:
    assert reply_topic([(REPLY_TO, None), (REPLY_TO, b"a"), (REPLY_TO, b"b")]) == b"a"
