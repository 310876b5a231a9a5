"""Our audit and the genuine one of Apache ActiveMQ: the same answers, and where not, why.

Each difference falls in one of the classes below; `Bins` tells, by the rules that were read out of
the genuine class, which numbers it has a place for.
"""

import random
import shutil
import struct
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest

from ringfence_client.headers import Reason
from ringfence_service.config.addresses import AddressSettings
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.strategies.registry import STRATEGIES
from tests.oracle import genuine

pytestmark = pytest.mark.oracle

SEED: Final = 40
DECISIONS: Final = 1_000_000
DEPTHS: Final = (64, 100, 2_048)
JUMP_MAX: Final = 1_000_000
LIMIT: Final = 4
BATCH: Final = 500
BITS: Final = 64
SOURCE: Final = PartitionId("in", 0)
AT: Final = Origin(*SOURCE, 0, 0)

DIFFERENCES: Final = {
    "below their window": (
        "new, every time, and never recorded: an old resend is delivered again",
        "judged by its bit, or a duplicate below our window",
    ),
    "below our window": (
        "judged by its bit while their bins, which hold up to 64 numbers more, have it",
        "a duplicate",
    ),
    "a far jump": (
        "new, and everything before it is forgotten",
        "refused as an invalid claim, and nothing is forgotten",
    ),
    "after a far jump": (
        "judged by a window that the jump has moved",
        "judged by the window from before it",
    ),
    "forgotten by one of us": (
        "a producer whose jump was taken counts as heard of",
        "one whose jump was refused does not, so another is the one that was idle longest",
    ),
}
"""Class → what ActiveMQ answers, and what we answer."""


class Message(NamedTuple):
    """One message of a trace."""

    producer: int
    number: int


@dataclass
class Bins:
    """Which numbers a producer's bins have a place for."""

    depth: int
    base: int = -1

    def holds(self, number: int) -> bool:
        """Whether a number is judged by a bit; the bins slide for one that is too high."""
        bins = (self.depth + 1) // BITS + 1
        place = number // BITS
        if self.base < 0:
            self.base = place
        self.base = max(self.base, place - bins + 1)
        return place >= self.base


@dataclass
class Ours:
    """Our audit as the service drives it, committed batch by batch."""

    settings: AddressSettings

    def __post_init__(self) -> None:
        self._memory = STRATEGIES["audit"].load([])
        self._begin()

    def _begin(self) -> None:
        self._draft = self._memory.begin(self.settings, PackedPositions(SOURCE))
        self._asked = 0

    def decide(self, message: Message) -> Reason | None:
        """The verdict."""
        claim = Claim(publisher=f"{message.producer}", number=message.number)
        why = self._draft.verdict(claim, AT)
        if why is None:
            self._draft.remember(claim, AT)
        elif why.reason is Reason.DUPLICATE:
            self._draft.repeated(claim, AT)
        self._asked += 1
        if self._asked == BATCH:
            change = self._draft.change("a")
            if change is not None:
                self._memory.apply(change.content)
            self._begin()
        return None if why is None else why.reason


@dataclass
class Heard:
    """Producers in the order in which each side heard of them last, at most as many as it keeps."""

    depth: int
    theirs: "OrderedDict[int, Bins]" = field(default_factory=OrderedDict)
    ours: "OrderedDict[int, int]" = field(default_factory=OrderedDict)
    apart: dict[int, str] = field(default_factory=dict)
    """Producers with two histories, and why, until both sides have forgotten them."""

    def explain(self, message: Message, verdict: Reason | None) -> str | None:
        """The class of a message; None where both must agree. Called for every message."""
        name, number = message
        highest = self.ours.get(name)
        if (name in self.theirs) != (highest is not None):
            self.apart.setdefault(name, "forgotten by one of us")
        bins = self.theirs.setdefault(name, Bins(self.depth))
        self.theirs.move_to_end(name)
        in_theirs = bins.holds(number)
        found = self.apart.get(name)
        if verdict is Reason.INVALID_CLAIM:
            found = "a far jump"
            self.apart.setdefault(name, "after a far jump")
        else:
            self.ours[name] = max(number, highest or 0)
            self.ours.move_to_end(name)
        self._forget()
        if found is None and not in_theirs:
            found = "below their window"
        if found is None and highest is not None and number <= highest - self.depth:
            found = "below our window"
        return found

    def _forget(self) -> None:
        for kept in (self.theirs, self.ours):
            while len(kept) > LIMIT:
                kept.popitem(last=False)
        for name in self.apart.keys() - self.theirs.keys() - self.ours.keys():
            del self.apart[name]


def random_trace(chance: random.Random, depth: int, count: int) -> list[Message]:
    """Ten producers over a limit of four; numbers go on, come again, fall back and jump."""
    at = [chance.randint(1, 5_000) for _ in range(10)]
    trace, favourites = [], list(range(10))
    for step in range(count):
        if step % 200 == 0:
            chance.shuffle(favourites)
        producer = favourites[min(int(chance.expovariate(0.7)), 9)]
        kind = chance.random()
        if kind < 0.6:
            at[producer] += 1
            number = at[producer]
        elif kind < 0.95:
            number = max(1, at[producer] - int(chance.expovariate(1.5 / depth)))
        elif kind < 0.999:
            at[producer] += chance.randint(2, 3 * depth)
            number = at[producer]
        else:
            number = at[producer] + 2 * JUMP_MAX
        trace.append(Message(producer, number))
    return trace


@pytest.fixture(scope="module", autouse=True)
def _genuine() -> None:
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on the PATH: install a JDK 17 and Maven")
    genuine.prepare()


def compare(depth: int, trace: list[Message]) -> Counter[str]:
    """Assert that verdicts agree where both windows hold the number; count the others."""
    asked = struct.pack(">iii", depth, LIMIT, len(trace))
    asked += b"".join(struct.pack(">Bq", *message) for message in trace)
    theirs = genuine.judge(asked, genuine.AUDIT)
    settings = AddressSettings(
        strategy="audit", audit_depth=depth, audit_producers=LIMIT, audit_jump_max=JUMP_MAX
    )
    ours, heard, count = Ours(settings), Heard(depth), Counter[str]()
    for step, (message, answer) in enumerate(zip(trace, theirs, strict=True)):
        verdict = ours.decide(message)
        reason = heard.explain(message, verdict)
        count["decisions"] += 1
        count["duplicates"] += answer
        if reason is None:
            assert (verdict is None) == (not answer), f"depth {depth}, step {step}"
            count["in both windows"] += 1
        elif (verdict is None) != (not answer):
            count[reason] += 1
    return count


def test_our_audit_agrees_with_activemq_where_both_windows_hold_the_number() -> None:
    chance, total = random.Random(SEED), Counter[str]()
    for depth in DEPTHS:
        total += compare(depth, random_trace(chance, depth, DECISIONS // len(DEPTHS) + 1))
    print(f"\nseed {SEED}, depths {DEPTHS}:", *(f"{n:,} {name}" for name, n in total.items()))
    for name, (they, we) in DIFFERENCES.items():
        print(f"{total[name]:>9,}  {name}: ActiveMQ: {they}; Ringfence: {we}")
    assert total["decisions"] >= DECISIONS
    assert total["in both windows"] > DECISIONS / 2
    assert total.keys() <= {"decisions", "duplicates", "in both windows", *DIFFERENCES}
    assert all(total[name] for name in DIFFERENCES), "each class is seen"


@pytest.mark.parametrize(
    ("depth", "numbers", "theirs", "ours"),
    [
        pytest.param(2048, [1, 2111, 1, 2112, 1, 1], "001000", "001011", id="case 38"),
        pytest.param(2048, [100, 63, 63, 64, 64], "00001", "00101", id="case 39"),
        pytest.param(128, [64, 768, 576], "000", "001", id="case 40"),
        pytest.param(
            100, [*range(1, 129), 64, 63], "0" * 128 + "10", "0" * 128 + "11", id="case 37"
        ),
    ],
)
def test_where_activemq_lets_an_old_number_through_again_we_do_not(
    depth: int, numbers: list[int], theirs: str, ours: str
) -> None:
    asked = struct.pack(">iii", depth, LIMIT, len(numbers))
    asked += b"".join(struct.pack(">Bq", 1, number) for number in numbers)
    answers = genuine.judge(asked, genuine.AUDIT)
    assert "".join(map(str, answers)) == theirs
    audit = Ours(AddressSettings(strategy="audit", audit_depth=depth))
    verdicts = [audit.decide(Message(1, number)) for number in numbers]
    assert "".join("1" if verdict is Reason.DUPLICATE else "0" for verdict in verdicts) == ours
