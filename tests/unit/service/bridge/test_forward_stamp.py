"""A record that claims nothing is stamped with its place; every other one is left alone."""

import pytest

from ringfence_client.headers import Headers
from ringfence_service.bridge.forward import has_claim, stamped
from ringfence_service.kafka.model import UNREADABLE

PREFIX = b"cluster/orders/3/"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], False),
        ([("note", b"x")], False),
        ([("_DUPL_ID", b"1")], True),
        ([("_AMQ_DUPL_ID", b"1")], True),
        ([("_HQ_DUPL_ID", b"1")], True),
        ([("_DUPL_ID", b"")], True),
        ([("_DUPL_ID", None)], False),
        ([("_DUPL_ID", None), ("_AMQ_DUPL_ID", b"1")], True),
        ([("_dupl_id", b"1")], False),
        ([("_PUBLISHER", b"p"), ("_SEQ", b"7")], True),
        ([("_SEQ", b"7"), ("_PUBLISHER", b"p")], True),
        ([("_PUBLISHER", b"p")], False),
        ([("_SEQ", b"7")], False),
        ([("_PUBLISHER", None), ("_SEQ", b"7")], False),
        ([("_PUBLISHER", b"p"), ("_SEQ", None)], False),
        ([("_PUBLISHER", b"p"), ("_SEQ", b"0")], False),
        ([("_PUBLISHER", b"p"), ("_SEQ", b"0"), ("_SEQ", b"7")], False),
        ([("_PUBLISHER", b"p"), ("_SEQ", b"bad")], True),
        ([("_PUBLISHER", b"p"), ("_SEQ", b"")], True),
    ],
)
def test_a_claim_is_an_id_or_a_publisher_with_a_number(headers: Headers, expected: bool) -> None:  # noqa: FBT001
    assert has_claim(headers) is expected


def test_the_stamp_is_the_place_in_the_source_behind_all_other_headers() -> None:
    claimed: Headers = [("_DUPL_ID", b"1"), ("a", None)]
    told: Headers = [("b", b"2"), ("b", None), ("_DUPL_ID", None)]
    column = [claimed, told, None, [], UNREADABLE]
    found = stamped(column, [4, 5, 7, 8, 9], PREFIX)
    assert found == [
        claimed,
        [*told, ("_DUPL_ID", b"cluster/orders/3/5")],
        [("_DUPL_ID", b"cluster/orders/3/7")],
        [("_DUPL_ID", b"cluster/orders/3/8")],
        UNREADABLE,
    ]
    assert found[4] is UNREADABLE
