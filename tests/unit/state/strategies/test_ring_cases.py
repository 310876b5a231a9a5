"""What Artemis' own tests ask of a duplicate cache, asked of ours."""

import pytest

from tests.oracle.ours import OurRing

pytestmark = pytest.mark.parametrize("one_by_one", [False, True], ids=["batch", "each"])


def send(ring: OurRing, ids: str, *, one_by_one: bool) -> str:
    """The ids that are accepted, of messages in one transaction or in one each."""
    sent = ids.split()
    if one_by_one:
        verdicts = b"".join(ring.decide([identifier.encode()]) for identifier in sent)
    else:
        verdicts = ring.decide([identifier.encode() for identifier in sent])
    return " ".join(name for name, known in zip(sent, verdicts, strict=True) if not known)


def numbered(first: int, end: int) -> str:
    return " ".join(f"id-{number}" for number in range(first, end))


def test_the_newest_id_takes_the_place_of_the_oldest(*, one_by_one: bool) -> None:
    ring = OurRing(3)
    assert send(ring, "a b c d", one_by_one=one_by_one) == "a b c d"
    assert send(ring, "a", one_by_one=one_by_one) == "a"
    assert send(ring, "c d a b", one_by_one=one_by_one) == "b"


def test_a_hit_does_not_refresh_the_id(*, one_by_one: bool) -> None:
    assert send(OurRing(3), "a b c a d a", one_by_one=one_by_one) == "a b c d a"


def test_of_three_equal_ids_the_first_is_accepted(*, one_by_one: bool) -> None:
    assert send(OurRing(3), "a a a", one_by_one=one_by_one) == "a"


def test_a_duplicate_does_not_disturb_the_ids_around_it(*, one_by_one: bool) -> None:
    ring = OurRing(3)
    assert len(ring) == 0
    assert send(ring, "a a b", one_by_one=one_by_one) == "a b"
    assert send(ring, "a b", one_by_one=one_by_one) == ""
    assert len(ring) == 2


def test_ids_are_compared_byte_by_byte(*, one_by_one: bool) -> None:
    ring = OurRing(10)
    ids = ["é".encode(), "é".encode("utf-16-le"), "é".encode("latin-1"), b"", b"\0", b"e\xcc\x81"]
    batches = [[identifier] for identifier in ids] if one_by_one else [ids]
    assert b"".join(ring.decide(batch) for batch in batches) == bytes(6)
    assert b"".join(ring.decide(batch) for batch in batches) == b"\1" * 6


def test_the_rings_of_three_addresses_are_independent(*, one_by_one: bool) -> None:
    rings = [OurRing(20), OurRing(20), OurRing(20)]
    for ids, accepted in [
        (numbered(0, 20), numbered(0, 20)),
        (numbered(0, 20), ""),
        (numbered(20, 40), numbered(20, 40)),
        (numbered(0, 20), numbered(0, 20)),
    ]:
        for ring in rings:
            assert send(ring, ids, one_by_one=one_by_one) == accepted


def test_each_address_has_its_own_size(*, one_by_one: bool) -> None:
    assert send(OurRing(2), "1 2 1", one_by_one=one_by_one) == "1 2"
    assert send(OurRing(1), "1 2 1", one_by_one=one_by_one) == "1 2 1"


def test_size_zero_accepts_all_and_stores_nothing(*, one_by_one: bool) -> None:
    ring = OurRing(0)
    assert send(ring, "a a a a a", one_by_one=one_by_one) == "a a a a a"
    assert len(ring) == 0
    assert not ring.changelog


def test_known_ids_are_known_after_a_restart(*, one_by_one: bool) -> None:
    ring = OurRing(5)
    send(ring, "a b c d e", one_by_one=one_by_one)
    ring.restart(5)
    assert send(ring, "a b c d e", one_by_one=one_by_one) == ""


def test_what_was_not_stored_is_new_after_a_restart(*, one_by_one: bool) -> None:
    ring = OurRing(5)
    send(ring, "a b", one_by_one=one_by_one)
    ring.changelog.clear()
    ring.restart(5)
    assert send(ring, "a b", one_by_one=one_by_one) == "a b"


def test_a_restart_with_a_smaller_size_keeps_the_newest_ids(*, one_by_one: bool) -> None:
    ring = OurRing(150)
    send(ring, numbered(0, 200), one_by_one=one_by_one)
    stored = len(ring.changelog)
    ring.restart(100)
    assert len(ring) == 100
    assert send(ring, numbered(150, 200), one_by_one=one_by_one) == ""
    assert send(ring, numbered(100, 150), one_by_one=one_by_one) == ""
    if one_by_one:
        # 150 runs of one id each before, and one that the next batch deletes; now 100 of them and
        # the run that tells the new size.
        assert (stored, len(ring.changelog)) == (151, 101)
    assert send(ring, "id-99", one_by_one=one_by_one) == "id-99"


def test_what_is_stored_never_exceeds_the_size(*, one_by_one: bool) -> None:
    ring = OurRing(10)
    for start in (0, 100):
        send(ring, numbered(start, start + 100), one_by_one=one_by_one)
        ring.restart(10)
        assert len(ring) == 10
        assert send(ring, numbered(start + 90, start + 100), one_by_one=one_by_one) == ""
        # What a batch outlives is deleted with the next one.
        assert len(ring.changelog) == (10 if one_by_one else 1)


def test_a_batch_longer_than_the_ring_leaves_its_last_ids(*, one_by_one: bool) -> None:
    ring = OurRing(3)
    assert send(ring, "a b c d e", one_by_one=one_by_one) == "a b c d e"
    assert send(ring, "c d e", one_by_one=one_by_one) == ""
    assert send(ring, "b", one_by_one=one_by_one) == "b"


def test_a_long_batch_into_a_ring_of_two_thousand_leaves_the_last_two_thousand(
    *, one_by_one: bool
) -> None:
    ring = OurRing(2000)
    assert send(ring, numbered(0, 5000), one_by_one=one_by_one) == numbered(0, 5000)
    ring.restart(2000)
    assert send(ring, numbered(3000, 5000), one_by_one=one_by_one) == ""
    assert send(ring, "id-2999", one_by_one=one_by_one) == "id-2999"
