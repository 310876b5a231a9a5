"""One run: trace the tests that changed, judge the mutants that are not judged yet.

A process that has collected all tests judges what changes functions; this one, which has imported
none of the tested packages, judges what changes an import. Each mutant has a child of its own.
"""

import importlib
import json
import os
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutation.children import ELSEWHERE, FOUND, Ending, Task, endings
from tests.mutation.mutant import Mutant
from tests.mutation.patch import Functions, NotExchangeableError, import_as
from tests.mutation.reach import Reach, Traced
from tests.mutation.results import (
    KILLED,
    SURVIVED,
    TIMED_OUT,
    UNREACHED,
    Result,
    Results,
    code_digest,
    judges,
)
from tests.mutation.warm import OPTIONS, Warm

TOLD_EVERY: Final = 25
OUTCOMES: Final = {"nothing": SURVIVED, "too long": TIMED_OUT, "elsewhere": "elsewhere"}


class Options(NamedTuple):
    """Options of a run."""

    root: Path
    packages: tuple[str, ...]
    tests: tuple[str, ...]
    marks: str
    folder: Path
    """Where it keeps what it has found."""
    jobs: int
    budget_s: float
    """How many seconds of tests one mutant may cost at most."""
    again: bool
    """Whether to judge what is judged already."""


class Run:
    """One run over some mutants."""

    def __init__(self, options: Options, mutants: Mapping[str, Mutant]) -> None:
        self._options, self._mutants = options, mutants
        self._reach = Reach(options.root, options.packages)
        self.results = Results(options.folder / "results.jsonl")
        self._killers: dict[tuple[str, str], list[str]] = defaultdict(list)
        """Tests that found a mutant of the same function are asked first."""
        self._judged = 0

    @property
    def _map(self) -> Path:
        return self._options.folder / "reach.json"

    def go(self) -> None:
        _in_process(self._go_warm)
        self.load()
        left = list(self._left(at_import=True))
        if left:
            for name in self._reach.others:
                with suppress(Exception):
                    importlib.import_module(name)
            self._judge(self._imported(key) for key in left)

    def could_be_run(self, key: str) -> int:
        """How many tests execute the mutant."""
        return len(self._reach.tests_of(self._mutants[key]))

    def load(self) -> None:
        """What other processes have found."""
        self._reach.load(self._map)
        self.results = Results(self._options.folder / "results.jsonl")

    def known(self, key: str) -> Result | None:
        return self.results.of(key, self._depends(key), self._reach, self._tests(key))

    # In the process that has collected all tests.

    def _go_warm(self) -> None:
        if self._with_pytest(self._options.tests, self._warm):
            sys.exit("without these tests, mutants that they find would survive")

    def _warm(self, warm: Warm, items: Sequence[pytest.Item]) -> None:
        if warm.not_collected:
            return
        self._reach.load(self._map)
        self._trace(warm, items)
        by_name = {item.nodeid: item for item in items}
        for gone in self._reach.traced.keys() - by_name.keys():
            del self._reach.traced[gone]
        self._reach.others = _others(self._options.packages)
        self._reach.save(self._map)
        functions = Functions(self._options.root)
        left = list(self._left(at_import=False))
        self._judge(self._exchanged(key, warm, by_name, functions) for key in left)

    def _trace(self, warm: Warm, items: Sequence[pytest.Item]) -> None:
        """In children too, so that what the tests leave behind is gone with them."""
        left = [item for item in items if not self._reach.is_current(item.nodeid)]
        if not left:
            return
        _tell(f"{len(left)} of {len(items)} tests are traced")
        parts = [list(part) for _, part in groupby(left, lambda item: item.path)]
        with tempfile.TemporaryDirectory() as folder:
            tasks = (
                self._traced(warm, part, Path(folder) / str(n)) for n, part in enumerate(parts)
            )
            for number, ending in enumerate(endings(tasks, self._options.jobs), 1):
                if ending.how != "nothing":
                    _tell(f"tracing {ending.name} {ending.how}: {ending.said}")
                    continue
                part = parts[int(ending.name)]
                found = json.loads((Path(folder) / ending.name).read_text())
                for item in part:
                    self._reach.traced.pop(item.nodeid, None)
                    if item.nodeid in found:
                        self._reach.traced[item.nodeid] = Traced(*found[item.nodeid])
                    else:
                        _tell(f"does not pass, and judges nothing: {item.nodeid}")
                if number % TOLD_EVERY == 0:
                    _tell(f"{number} of {len(parts)} files")
                    self._reach.save(self._map)

    def _traced(self, warm: Warm, part: Sequence[pytest.Item], path: Path) -> Task:
        def work(out: int) -> None:
            del out
            found = warm.trace(part, self._options.root, self._options.packages)
            path.write_text(json.dumps(found))

        return Task(path.name, work)

    def _exchanged(
        self, key: str, warm: Warm, items: Mapping[str, pytest.Item], functions: Functions
    ) -> Task:
        tests = self._ordered(key)
        functions.genuine(self._mutants[key].path)

        def work(out: int) -> None:
            try:
                functions.exchange(self._mutants[key])
            except NotExchangeableError:
                os._exit(ELSEWHERE)
            warm.judge([items[test] for test in tests], self._reach, out)

        return Task(key, work)

    # In a process that has imported nothing of the tested packages.

    def _imported(self, key: str) -> Task:
        tests = self._ordered(key)

        def judge(warm: Warm, items: Sequence[pytest.Item]) -> None:
            if warm.not_collected:
                os._exit(FOUND)
            by_name = {item.nodeid: item for item in items}
            warm.judge([by_name[test] for test in tests if test in by_name], self._reach, out[0])
            os._exit(0)

        out: list[int] = []

        def work(descriptor: int) -> None:
            out.append(descriptor)
            os.write(descriptor, b"0\n")  # what the import breaks, the first test finds
            mutant, root = self._mutants[key], self._options.root
            import_as(mutant.path, mutant.applied((root / mutant.path).read_bytes()), root)
            self._with_pytest(sorted({test.split("::")[0] for test in tests}), judge)
            os._exit(FOUND)  # it was not collected

        return Task(key, work)

    # What both do.

    def _with_pytest(self, tests: Sequence[str], work: object) -> list[str]:
        """Have pytest collect these tests, and return what it could not collect."""
        warm = Warm(work)  # type: ignore[arg-type]
        os.chdir(self._options.root)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # in a child; reports go to stderr
        marks = ["-m", self._options.marks] if self._options.marks else []
        pytest.main([*OPTIONS, "--timeout=0", *marks, *tests], plugins=[warm])
        for fault in warm.not_collected:
            _tell(fault)
        return warm.not_collected

    def _left(self, *, at_import: bool) -> Iterator[str]:
        for key, mutant in self._mutants.items():
            known = self.known(key)
            is_elsewhere = known is not None and known.outcome == "elsewhere"
            if (mutant.at_import or is_elsewhere) != at_import:
                continue
            if known is None or is_elsewhere or self._options.again:
                if self._tests(key):
                    yield key
                else:
                    self._keep(Ending(key, UNREACHED, "", 0), [])

    def _judge(self, tasks: Iterator[Task]) -> None:
        for ending in endings(tasks, self._options.jobs):
            self._keep(ending, self._ordered(ending.name))

    def _keep(self, ending: Ending, tests: Sequence[str]) -> None:
        key, mutant = ending.name, self._mutants[ending.name]
        outcome = UNREACHED if not tests else OUTCOMES.get(ending.how, KILLED)
        numbers = [int(word) for word in ending.said.split() if word.isdecimal()]
        test, count = "", len(tests)
        if outcome in {KILLED, TIMED_OUT}:
            count = numbers[-1] if numbers else 0
            test = tests[count]
            killers = self._killers[mutant.path, mutant.scope]
            if test in killers:
                killers.remove(test)
            killers.insert(0, test)
            judged_by = self._reach.digest(test)
        else:
            judged_by = judges(self._reach, self._tests(key))
        depends = self._depends(key)
        self.results.add(
            Result(key, outcome, test, count, depends, judged_by, round(ending.seconds, 3))
        )
        self._judged += 1
        if self._judged % TOLD_EVERY == 0:
            _tell(f"{self._judged} judged, at {mutant.path} {mutant.scope}")

    def _depends(self, key: str) -> str:
        mutant = self._mutants[key]
        return code_digest(mutant, _source(self._options.root / mutant.path))

    @cache  # noqa: B019 - one object lives as long as the process
    def _tests(self, key: str) -> list[str]:
        """As many as may be run."""
        found, left_s = list[str](), self._options.budget_s
        for test in self._reach.tests_of(self._mutants[key]):
            left_s -= self._reach.traced[test].seconds
            if left_s < 0 and found:
                break
            found.append(test)
        return found

    def _ordered(self, key: str) -> list[str]:
        mutant, tests = self._mutants[key], self._tests(key)
        likely = [self.results.found_by(key), *self._killers[mutant.path, mutant.scope]]
        first = list(dict.fromkeys(each for each in likely if each in tests))
        return first + [test for test in tests if test not in first]


@cache
def _source(path: Path) -> bytes:
    return path.read_bytes()


def _in_process(work: object) -> None:
    """In a child that keeps what it imports for itself."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(f"pytest ended with {status}")
        return
    code = 1
    try:
        work()  # type: ignore[operator]
        code = 0
    except SystemExit as ended:
        _tell(str(ended))
    except BaseException:  # noqa: BLE001 - nothing of the child goes on in its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _others(packages: Sequence[str]) -> list[str]:
    own = {*packages, "tests", "conftest", "__main__"}
    tops = ((name, name.partition(".")[0]) for name in sys.modules)
    return sorted(name for name, top in tops if top not in own and not top.startswith("ringfence"))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
