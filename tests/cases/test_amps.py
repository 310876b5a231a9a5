"""Cases 58 and 59: AMPS, which keeps one number for each publisher, the highest.

Beside the case, random traces through the real loop are judged by the slowest obvious model.
"""

import random
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import BOOKMARK, NUMBER, PUBLISHER, bookmark
from tests.cases.case import Case, Manner, every_case, every_manner
from tests.cases.chance import manners, restarts
from tests.cases.scene import Scene
from tests.cases.trace import fates, rendered
from tests.fakes.partition import Record
from tests.support.examples import examples
from tests.support.living import ROUTE

SEQUENCE: Final = {"strategy": "sequence"}


@every_manner
@every_case(
    Case(
        58,
        "a number is in once it is above the last of its publisher",
        "P#10 P#11 P#11 P#9 Q#9 P#20 P#12",
        "in in dup dup in in dup",
        SEQUENCE,
    ),
    Case(58, "a number of 0 is none and never checked", "P#0 P#0 - - P#1 P#0", "in*6", SEQUENCE),
)
def test_amps(case: Case, manner: Manner) -> None:
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


@every_manner
def test_case_58_what_goes_out_tells_publisher_and_number_as_a_bookmark(manner: Manner) -> None:
    scene = Scene(SEQUENCE, manner)
    scene.play("P#10 P#11 P#10 Q#9 -")
    told = [dict(record.headers or [])[BOOKMARK] for record in _outputs(scene)]
    derived = bookmark("@g/orders/0", 5)  # of its place, where nobody tells a number
    assert told == [bookmark("P", 10), bookmark("P", 11), bookmark("Q", 9), derived]
    assert len(set(told)) == len(told)


@every_manner
def test_case_58_a_group_and_what_a_bridge_stamped_have_their_bookmarks_too(
    manner: Manner,
) -> None:
    scene = Scene(SEQUENCE, manner, route=replace(ROUTE, missing_id="dead_letter"))
    assert scene.play("t[P#1,-,P#0] ~7 u[-,-] ~7") == fates("in*6 dup")
    told = [dict(record.headers or [])[BOOKMARK] for record in _outputs(scene)]
    anonymous = [bookmark("@g/orders/0", number) for number in (2, 4, 5, 6)]
    assert told == [
        bookmark("P", 1),
        anonymous[0],
        bookmark("P@g/orders/0", 3),
        *anonymous[1:],
    ]


@pytest.mark.parametrize("number", [b"9223372036854775808", b"-1", b"1.5", b"", b" 1", b"0x1"])
def test_case_58_what_is_no_number_of_64_bits_is_refused_and_disturbs_nothing(
    number: bytes,
) -> None:
    scene = Scene(SEQUENCE)
    scene.play("P#5")
    scene.put([(PUBLISHER, b"P"), (NUMBER, number)])
    assert scene.play("P#5 P#9223372036854775807 P#9223372036854775807") == fates("dup in dup")
    assert scene.told()[1] == "invalid-claim"


@every_manner
def test_case_59_at_logon_a_publisher_is_given_its_last_number(manner: Manner) -> None:
    """Its store drops what is not above that, and goes on from there."""
    scene = Scene(SEQUENCE, manner)
    scene.play("P#1..60")
    epoch = scene.log_on("P")
    assert scene.last_number("P") == 60
    assert scene.play_in_session(epoch, "P#50..61 P#61") == fates("dup*11 in dup")
    assert scene.play("P#62 Q#1") == fates("name-in-use in"), "late, of no session"
    scene.lose_machine()
    assert scene.play("P#62") == fates("name-in-use")
    assert scene.log_on("P") == epoch + 1
    assert scene.last_number("P") == 61
    assert scene.play_in_session(epoch, "P#62") == fates("name-in-use")
    assert scene.play_in_session(epoch + 1, "P#62") == fates("in")


@every_manner
def test_case_59_a_number_that_was_set_back_is_reported_and_counts(manner: Manner) -> None:
    """A store that was discarded up to 50 finds 40 and knows of the gap; the service cannot."""
    scene = Scene(SEQUENCE, manner)
    scene.play("P#1..60")
    scene.set_number("P", 40)
    assert scene.last_number("P") == 40
    epoch = scene.log_on("P")
    assert scene.play_in_session(epoch, "P#40 P#41..61 P#60") == fates("dup in*21 dup")
    scene.lose_machine()
    assert scene.last_number("P") == 61


@every_manner
def test_case_59_a_number_that_was_set_ahead_is_reported_and_counts(manner: Manner) -> None:
    scene = Scene(SEQUENCE, manner)
    scene.play("P#1..50")
    scene.set_number("P", 60)
    scene.lose_machine()
    assert scene.last_number("P") == 60
    assert scene.play("P#51..61") == fates("dup*10 in")
    assert scene.acknowledged()[-1] == ("P", 61)


@every_manner
def test_case_59_a_number_that_was_set_for_an_audit_covers_all_before_it(manner: Manner) -> None:
    scene = Scene({"strategy": "audit", "audit_depth": 64}, manner)
    scene.play("P#1..50")
    scene.set_number("P", 60)
    assert scene.play("P#1 P#30 P#50..60 P#62 P#61 P#61") == fates("dup*13 in in dup")
    scene.set_number("P", 40)
    assert scene.play("P#40 P#30 P#41..50") == fates("dup dup in*10")
    scene.set_number("P", 0)
    assert scene.play("P#1 P#2 P#1") == fates("in in dup")


@every_manner
def test_case_59_a_stream_that_was_set_goes_on_from_there(manner: Manner) -> None:
    scene = Scene({"strategy": "ordered"}, manner)
    scene.play("P#1.1<0 P#1.2<1")
    scene.set_number("P", 7, stream=2)
    assert scene.play("P#1.3<2 P#2.7<6 P#2.9<8 P#2.8<7") == fates(
        "out-of-order dup out-of-order in"
    )


class Published(NamedTuple):
    """A message with a number; its word is of `trace`."""

    before: str
    publisher: str
    number: int

    def __str__(self) -> str:
        return f"{self.before} {self.publisher}#{self.number}"


class HighestModel:
    """All numbers that were let in, of everybody."""

    def __init__(self) -> None:
        self.accepted: list[Published] = []

    def fate(self, sent: Published) -> str:
        own = [each.number for each in self.accepted if each.publisher == sent.publisher]
        if sent.number and sent.number <= max(own, default=0):
            return "dup"
        self.accepted.append(sent)
        return "in"


numbers = st.one_of(st.integers(0, 12), st.integers(2**63 - 3, 2**63 - 1))
messages = st.builds(Published, restarts, st.sampled_from("PQR"), numbers)


@examples(40)
@given(st.lists(messages, min_size=12, max_size=40), manners, st.randoms(use_true_random=False))
def test_case_58_a_sequence_agrees_with_a_list_of_all_numbers(
    trace: list[Published], manner: Manner, chance: random.Random
) -> None:
    model = HighestModel()
    scene = Scene(SEQUENCE, manner, noise=chance)
    assert scene.play(rendered(trace)) == [model.fate(sent) for sent in trace]
    marks = [dict(record.headers or [])[BOOKMARK] for record in _outputs(scene)]
    counted = [each for each in zip(model.accepted, marks, strict=True) if each[0].number]
    assert all(mark == bookmark(each.publisher, each.number) for each, mark in counted)


def _outputs(scene: Scene) -> list[Record]:
    return scene.cluster.records("orders.unique")
