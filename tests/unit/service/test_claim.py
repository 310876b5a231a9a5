"""What headers claim."""

import pytest

from ringfence.headers import Reason
from service.claim import plain_ids, read_claim
from service.rejection import RejectedError
from state.claim import NO_CLAIM, Claim
from tests.unit.helpers import rows


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
    assert read_claim(headers) == claim


@pytest.mark.parametrize(
    ("headers", "identifier"),
    [
        ([("trace", b"t"), ("_DUPL_ID", b"1"), ("trace", None)], b"1"),
        ([("_HQ_DUPL_ID", b"")], b""),
        ([("_DUPL_ID", b"x" * 65_536)], b"x" * 65_536),
        ([], None),
        ([("_DUPL_ID", None)], None),
        ([("_DUPL_ID", b"1"), ("_DUPL_ID", b"1")], None),
        ([("_DUPL_ID", b"1"), ("_EXPIRES_AT", b"1")], None),
        ([("_EXPIRES_AT", b"1")], None),
        ([("_DUPL_ID", b"x" * 65_537)], None),
    ],
)
def test_a_plain_id_is_all_that_the_headers_claim_or_it_is_none(
    headers: list[tuple[str, bytes | None]], identifier: bytes | None
) -> None:
    assert plain_ids([headers]) == [identifier]
    if identifier is not None:
        assert read_claim(headers) == Claim(identifier, None)


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
