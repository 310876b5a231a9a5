"""What headers claim."""

import pytest

from ringfence.headers import Reason
from service.claim import plain_ids, read_claim
from service.rejection import RejectedError
from state.claim import NO_CLAIM, Claim


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
