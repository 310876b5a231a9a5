"""A tally of dead letters: by hour, and of many addresses those with most."""

from ringfence_service.dead_letters.browser import ADDRESSES_MAX, NONE, OTHER, DeadLetterTally
from ringfence_service.queries.dead_letters import DeadLetterPosition, DeadLetterView, view_of

HOUR_MS = 3_600_000
FOREIGN = view_of(DeadLetterPosition("dlq", 0, 1), 1, None, b"v", [])
LETTER = FOREIGN._replace(reason="duplicate", address="a")


def tally_of(*letters: DeadLetterView) -> DeadLetterTally:
    tally = DeadLetterTally()
    for each in letters:
        tally.add(each)
    return tally


def test_letters_are_counted_in_the_hour_of_their_decision() -> None:
    times_ms = (HOUR_MS - 1, HOUR_MS, 2 * HOUR_MS - 1)
    counts = tally_of(*(LETTER._replace(time_ms=time_ms) for time_ms in times_ms)).counts(3, None)
    assert counts.by_hour_ms == {0: 1, HOUR_MS: 2}


def test_letters_are_counted_by_their_reasons_and_topics() -> None:
    elsewhere = LETTER._replace(reason="expired", position=DeadLetterPosition("other", 0, 1))
    counts = tally_of(LETTER, LETTER, elsewhere).counts(3, None)
    assert counts.by_reason == {"duplicate": 2, "expired": 1}
    assert counts.by_topic == {"dlq": 2, "other": 1}


def test_a_foreign_record_is_no_letter_and_an_address_may_be_unknown() -> None:
    counts = tally_of(FOREIGN, LETTER, LETTER._replace(address=None)).counts(3, None)
    assert (counts.matched, counts.foreign) == (2, 1)
    assert counts.by_address == {"a": 1, NONE: 1}


def test_the_rest_of_many_addresses_is_counted_as_one() -> None:
    rare = (LETTER._replace(address=f"rare-{n}") for n in range(ADDRESSES_MAX + 4))
    counts = tally_of(LETTER, LETTER, *rare).counts(0, None)
    assert len(counts.by_address) == ADDRESSES_MAX + 1
    assert (counts.by_address["a"], counts.by_address[OTHER]) == (2, 5)
