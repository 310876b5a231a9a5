"""Cases 53 to 57: MSMQ, whose plain messages have a window and whose transactional ones a stream.

Beside the cases, random traces through the real loop are judged by the slowest obvious model.
"""

import random
from typing import Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.cases.case import Case, Manner, every_case, every_manner
from tests.cases.chance import manners, restarts
from tests.cases.scene import Scene
from tests.cases.trace import fates, rendered
from tests.support.examples import examples

PLAIN: Final = {"strategy": "window", "window_ms": 30_000}
ORDERED: Final = {"strategy": "ordered"}

KNOWN: Final = "S#5.1<0 S#5.2<1 S#5.3<2"
"""The last one is number 3 of stream 5."""
REPEATED: Final = f"{KNOWN} S#5.3<2 S#5.4<3 S#5.6<5 S#5.5<4 S#5.6<5 {KNOWN} S#5.6<5"
REPEATED_FATES: Final = "in*3 dup in out-of-order in in dup*3 dup"
SKIPPED: Final = f"{KNOWN} S#5.7<3 S#4.9<8 S#6.2<1 S#6.1<0"
SKIPPED_FATES: Final = "in*3 in out-of-order out-of-order in"


@every_manner
@every_case(
    Case(
        53,
        "a hit restarts the time of its id",
        "@0 a @29 a @58 a @118 a",
        "in dup dup in",
        PLAIN,
    ),
    Case(
        53,
        "an untouched id lives for one window where MSMQ keeps it up to two",
        "@0 a b @30 a @31 b @60 a @91 a",
        "in in dup in dup in",
        PLAIN,
    ),
    Case(
        53,
        "a hit refreshes nothing where that is wanted",
        "@0 a @29 a @31 a",
        "in dup in",
        PLAIN | {"refresh_on_hit": False},
    ),
    Case(
        54,
        "the size bounds all senders together and a number counts for its sender",
        "P:1 P:2 P:3 P:4 P:1 Q:4 P:4 Q:1 Q:4",
        "in in in in in in dup in dup",
        PLAIN | {"window_size": 3},
    ),
    Case(
        54,
        "a hit is a sight for the size as well",
        "a b a c a b",
        "in in dup in dup in",
        PLAIN | {"window_size": 2},
    ),
    Case(55, "a stream goes on without a gap", REPEATED, REPEATED_FATES, ORDERED),
    Case(56, "a sender may skip and may begin a later stream", SKIPPED, SKIPPED_FATES, ORDERED),
)
def test_msmq(case: Case, manner: Manner) -> None:
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


def test_case_57_a_restart_between_any_two_messages_changes_no_verdict() -> None:
    for trace, expected in [(REPEATED, REPEATED_FATES), (SKIPPED, SKIPPED_FATES)]:
        words = trace.split()
        for at in range(1, len(words)):
            scene = Scene(ORDERED, Manner(keeps_disk=at % 2 == 0))
            cut = rendered([*words[:at], "|", *words[at:]])
            assert scene.play(cut) == fates(expected), cut


# Against models.


class Sight(NamedTuple):
    """A plain message that came at a second; its word is of `trace`."""

    before: str
    second: int
    sender: str
    identifier: int

    def __str__(self) -> str:
        return f"{self.before} @{self.second} {self.sender}{self.identifier}"


class Step(NamedTuple):
    """A message of a stream."""

    before: str
    sender: str
    stream: int
    number: int
    previous: int

    def __str__(self) -> str:
        return f"{self.before} {self.sender}#{self.stream}.{self.number}<{self.previous}"


class PlainModel:
    """Every sight of every id, in order; an id is known by asking all of them."""

    def __init__(self, size: int, window_s: int, *, refreshes: bool) -> None:
        self.size, self.window_s, self.refreshes = size, window_s, refreshes
        self.sights: list[tuple[tuple[str, int], int]] = []
        self.second = 0

    def fate(self, sight: Sight) -> str:
        self.second = max(self.second, sight.second)
        name = (sight.sender, sight.identifier)
        latest = list(dict.fromkeys(seen for seen, _ in reversed(self.sights)))[: self.size]
        times = [at for seen, at in self.sights if seen == name]
        known = name in latest and self.second - times[-1] <= self.window_s
        if not known or self.refreshes:
            self.sights.append((name, self.second))
        return "dup" if known else "in"


class StreamModel:
    """The rule of the specification, word by word."""

    def __init__(self) -> None:
        self.accepted: list[Step] = []

    def fate(self, step: Step) -> str:
        own = [each for each in self.accepted if each.sender == step.sender]
        stream, number = (own[-1].stream, own[-1].number) if own else (-1, 0)
        goes_on = step.stream == stream and step.number > number and step.previous <= number
        begins = step.stream > stream and step.previous == 0
        if goes_on or begins:
            self.accepted.append(step)
            return "in"
        return "dup" if step.stream == stream and step.number <= number else "out-of-order"


WINDOW_S: Final = 10
# Mostly none, else to the edge of a window and beyond it; a publisher's clock may go back.
passing = st.sampled_from([0, 0, 0, 0, 1, WINDOW_S, WINDOW_S + 1, -3])
sights = st.builds(Sight, restarts, passing, st.sampled_from(["", "P:"]), st.integers(1, 2))
steps = st.builds(
    Step, restarts, st.sampled_from("PQ"), st.integers(0, 2), st.integers(1, 5), st.integers(0, 4)
)


def timed(passed: list[Sight]) -> list[Sight]:
    """Each sight so many seconds after the one before."""
    second, found = 0, []
    for sight in passed:
        second = max(0, second + sight.second)
        found.append(sight._replace(second=second))
    return found


@examples(40)
@given(
    st.lists(sights, min_size=12, max_size=40).map(timed),
    st.integers(0, 4),
    st.sampled_from([WINDOW_S, 1000]),
    st.booleans(),
    manners,
    st.randoms(use_true_random=False),
)
def test_case_53_and_54_a_window_agrees_with_a_list_of_all_sights(
    trace: list[Sight],
    size: int,
    window_s: int,
    refreshes: bool,  # noqa: FBT001 - Hypothesis gives it by place
    manner: Manner,
    chance: random.Random,
) -> None:
    model = PlainModel(size, window_s, refreshes=refreshes)
    window = {"window_size": size, "window_ms": window_s * 1000, "refresh_on_hit": refreshes}
    scene = Scene(PLAIN | window, manner, noise=chance)
    assert scene.play(rendered(trace)) == [model.fate(sight) for sight in trace]


@examples(40)
@given(st.lists(steps, min_size=12, max_size=40), manners, st.randoms(use_true_random=False))
def test_case_55_to_57_a_stream_agrees_with_the_words_of_the_specification(
    trace: list[Step], manner: Manner, chance: random.Random
) -> None:
    model = StreamModel()
    scene = Scene(ORDERED, manner, noise=chance)
    assert scene.play(rendered(trace)) == [model.fate(step) for step in trace]
