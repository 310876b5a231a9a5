"""What Artemis' own tests ask of a duplicate cache, for this ring.

a b > a      messages, and those that are accepted    |5    a restart with another size
0..19 >      the ids 0 to 19, none of them            =3    how many are held
gone         the changelog is                         runs 1/10    how many it holds, of a
                                                      message in one batch, and in one each
"""

import re
from typing import Final

import pytest

from tests.oracle.ours import OurRing

CASES: Final = {
    "the newest id takes the place of the oldest": "|3; a b c d > a b c d; a > a; c d a b > b",
    "a hit does not refresh the id": "|3; a b c a d a > a b c d a",
    "of three equal ids the first is accepted": "|3; a a a > a",
    "a duplicate does not disturb the ids around it": "|3; =0; a a b > a b; a b >; =2",
    "size 1 has forgotten the one before": "|1; 1 2 1 > 1 2 1",
    "size 2 has not": "|2; 1 2 1 > 1 2",
    "size 0 accepts all and stores nothing": "|0; a a a a a > a a a a a; =0; runs 0/0",
    "known ids are known after a restart": "|5; a b c d e > a b c d e; |5; a b c d e >",
    "what was not stored is new after a restart": "|5; a b > a b; gone; |5; a b > a b",
    # In runs of one id each 150, and one that the next batch deletes; then 100, and the run that
    # reports the new size.
    "a smaller size keeps the newest ids": (
        "|150; 0..199 > 0..199; runs -/151; |100; =100; 150..199 >; 100..149 >; runs -/101; 99 > 99"
    ),
    # What a batch outlives is deleted with the next one.
    "what is stored never exceeds the size": (
        "|10; 0..99 > 0..99; |10; =10; 90..99 >; runs 1/10;"
        " 100..199 > 100..199; |10; =10; 190..199 >; runs 1/10"
    ),
    "a batch longer than the ring leaves its last ids": "|3; a b c d e > a b c d e; c d e >; b > b",
    "a batch longer than two thousand leaves two thousand": (
        "|2000; 0..4999 > 0..4999; |2000; 3000..4999 >; 2999 > 2999"
    ),
}


def ids_of(text: str) -> list[bytes]:
    span = re.fullmatch(r"(\d+)\.\.(\d+)", text.strip())
    words = map(str, range(int(span[1]), int(span[2]) + 1)) if span else text.split()
    return [word.encode() for word in words]


@pytest.mark.parametrize("one_by_one", [False, True], ids=["batch", "each"])
@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_a_ring_answers_as_artemis_does(steps: str, *, one_by_one: bool) -> None:
    ring = OurRing(0)
    for step in steps.split("; "):
        sent, is_sending, accepted = step.strip().rstrip(";").partition(" >")
        if step.startswith("|"):
            ring.restart(int(step[1:]))
        elif step.startswith("="):
            assert len(ring) == int(step[1:]), step
        elif step == "gone":
            ring.changelog.clear()
        elif step.startswith("runs "):
            wanted = step[5:].split("/")[one_by_one]
            assert wanted in {"-", str(len(ring.changelog))}, step
        else:
            assert is_sending
            batches = [[each] for each in ids_of(sent)] if one_by_one else [ids_of(sent)]
            verdicts = b"".join(ring.decide(batch) for batch in batches)
            found = [each for each, known in zip(ids_of(sent), verdicts, strict=True) if not known]
            assert found == ids_of(accepted), step


@pytest.mark.parametrize("one_by_one", [False, True], ids=["batch", "each"])
def test_ids_are_compared_byte_by_byte(*, one_by_one: bool) -> None:
    ring = OurRing(10)
    ids = ["é".encode(), "é".encode("utf-16-le"), "é".encode("latin-1"), b"", b"\0", b"e\xcc\x81"]
    batches = [[identifier] for identifier in ids] if one_by_one else [ids]
    assert b"".join(ring.decide(batch) for batch in batches) == bytes(6)
    assert b"".join(ring.decide(batch) for batch in batches) == b"\1" * 6
