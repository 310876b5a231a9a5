"""The score by file, and each survivor with what was changed."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.mutation.mutant import Mutant
from tests.mutation.results import FOUND, UNREACHED, Explained, Result

COLUMNS = ("mutants", "killed", "timed out", "survived", "not reached", "explained")


def report(
    root: Path,
    mutants: Mapping[str, Mutant],
    results: Mapping[str, Result],
    explained: Explained,
    tests_of: Callable[[str], int],
) -> Iterator[str]:
    """Lines: the survivors that nothing explains, then the table."""
    counts: dict[str, Counter[str]] = {}
    for key, mutant in mutants.items():
        count = counts.setdefault(mutant.path, Counter())
        result = results.get(key)
        is_found = result is not None and result.outcome in FOUND
        if mutant.identity in explained.reasons and not is_found:
            count["mutants"] += 1
            count["explained"] += 1
            continue
        if result is None:
            count["not judged"] += 1
            continue
        count["mutants"] += 1
        count[result.outcome] += 1
        if not is_found:
            yield f"{result.outcome}: {key}"
            of_all = f"{result.tests} of {tests_of(key)} tests were run"
            yield f"  {'no test executes it' if result.outcome == UNREACHED else of_all}"
            source = (root / mutant.path).read_bytes()
            yield from (f"    {line}" for line in mutant.diff(source).splitlines())
    yield f"{'':36}{''.join(f'{each:>12}' for each in COLUMNS)}{'score':>8}"
    for path, count in [*sorted(counts.items()), ("all", sum(counts.values(), Counter[str]()))]:
        cells = "".join(f"{count[each]:>12}" for each in COLUMNS)
        yield f"{path:36}{cells}{score(count):>8}"
    seconds = [result.seconds for key, result in results.items() if key in mutants]
    if seconds:
        mean_s = sum(seconds) / len(seconds)
        yield f"{mean_s:.2f} s of one core for a mutant: {3600 / max(mean_s, 0.001):,.0f} an hour"
    not_judged = sum(count["not judged"] for count in counts.values())
    if not_judged:
        yield f"{not_judged} are not judged yet"


def score(count: Counter[str]) -> str:
    """Which part of those that can be found is found."""
    can_be_found = count["mutants"] - count["explained"]
    found = count["killed"] + count["timed out"]
    return f"{100 * found / can_be_found:.1f} %" if can_be_found else "-"
