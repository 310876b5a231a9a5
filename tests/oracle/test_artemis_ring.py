"""Our ring and the genuine one of Apache ActiveMQ Artemis give the same answers."""

import shutil
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from tests.oracle import genuine
from tests.oracle.ours import OurModel, OurRing
from tests.oracle.trace import Batch, Open, Operation, Restart, encode, random_trace

pytestmark = pytest.mark.oracle

SEED = 20_000
DECISIONS_OF_SIZE = {
    0: 20_000,
    1: 150_000,
    2: 150_000,
    3: 150_000,
    20: 200_000,
    2_000: 200_000,
    20_000: 300_000,
}
DECISIONS_MIN = 1_000_000
COLUMNS = ("decisions", "duplicates", "rolled back", "restarts smaller", "restarts larger")


@pytest.fixture(scope="module", autouse=True)
def _genuine() -> None:
    missing = [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} on the PATH: install a JDK 17 and Maven")
    genuine.prepare()


def answers(new: type[OurRing | OurModel], trace: Iterable[Operation]) -> Iterator[bytes]:
    """Ours in the form of RingOracle.java; each `Open` begins with a new ring."""
    subject = new(0)
    for operation in trace:
        if isinstance(operation, Batch):
            yield subject.decide(operation.ids, committed=operation.committed)
            continue
        if isinstance(operation, Open):
            subject = new(operation.size)
        else:
            subject.restart(operation.size)
        yield struct.pack(">I", len(subject))


def compare(new: type[OurRing | OurModel], trace: Sequence[Operation]) -> Counter[str]:
    """Assert that the answers agree, operation by operation, and count what was compared."""
    theirs, position, size, count = genuine.judge(encode(trace)), 0, 0, Counter[str]()
    for step, (operation, ours) in enumerate(zip(trace, answers(new, trace), strict=True)):
        answer = theirs[position : position + len(ours)]
        position += len(ours)
        assert ours == answer, f"step {step}, size {size}: {_difference(operation, ours, answer)}"
        if isinstance(operation, Batch):
            count["decisions"] += len(ours)
            count["duplicates"] += sum(ours)
            count["rolled back"] += not operation.committed
            continue
        if isinstance(operation, Restart):
            count["restarts smaller"] += operation.size < size
            count["restarts larger"] += operation.size > size
        size = operation.size
    assert position == len(theirs), "the genuine ring answered more than it was asked"
    return count


def _difference(operation: Operation, ours: bytes, theirs: bytes) -> str:
    if not isinstance(operation, Batch):
        return f"{operation}: ids held {ours.hex()}, in Artemis {theirs.hex()}"
    row = next(row for row in range(len(ours)) if ours[row : row + 1] != theirs[row : row + 1])
    said = "a duplicate" if ours[row] else "accepted"
    identifier = operation.ids[row]
    return f"id {row} of {len(ours)}, {identifier!r}, is {said} here and not in Artemis"


def test_a_million_decisions_agree_with_the_genuine_ring(
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts: dict[str, Counter[str]] = {}
    for size, decisions in DECISIONS_OF_SIZE.items():
        counts[str(size)] = compare(OurRing, list(random_trace(SEED + size, size, decisions)))
        _assert_telling(counts[str(size)], size)
    counts["all"] = sum(counts.values(), Counter())
    with capsys.disabled():
        print("\n\nCompared with the genuine Artemis ring; all answers equal:")
        print("size    " + "".join(f"{name:>18}" for name in COLUMNS))
        for name, count in counts.items():
            print(f"{name:<8}" + "".join(f"{count[column]:>18,}" for column in COLUMNS))
    assert counts["all"]["decisions"] >= DECISIONS_MIN


def _assert_telling(count: Counter[str], size: int) -> None:
    """A trace must hit both verdicts often, and both kinds of restart."""
    if size:
        assert 0.2 < count["duplicates"] / count["decisions"] < 0.8
        assert count["restarts smaller"]
        assert count["restarts larger"]
    else:
        assert not count["duplicates"], "with size 0 nothing may be lost"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 20])
def test_the_dumb_model_agrees_with_the_genuine_ring(size: int) -> None:
    compare(OurModel, list(random_trace(SEED - size - 1, size, 20_000)))


def test_a_ring_that_was_off_for_a_while_has_forgotten_where_artemis_has_not() -> None:
    """A deliberate difference: Artemis leaves the records on disk and finds them again."""
    batch = Batch((b"a",), committed=True)
    trace: list[Operation] = [Open(3), batch, Restart(0), batch, Restart(3), batch]
    duplicate, accepted, one, none = b"\1", b"\0", b"\0\0\0\1", b"\0\0\0\0"
    assert genuine.judge(encode(trace)) == none + accepted + none + accepted + one + duplicate
    ours = b"".join(answers(OurRing, trace))
    assert ours == none + accepted + none + accepted + none + accepted
