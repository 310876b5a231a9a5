"""pytest, with everything imported and collected, that runs only the tests it is given."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import coverage
import pytest
from hypothesis import Phase, settings

from tests.mutation.children import FOUND, limit_test
from tests.mutation.reach import Reach, Traced, digest_of

OPTIONS: Final = (
    *("-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"),
    "--assert=plain",  # why a test fails is not read
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins that are imported already
)


class Warm:
    """A plugin of pytest: `work` takes the place of running all tests."""

    def __init__(self, work: Callable[["Warm", Sequence[pytest.Item]], None]) -> None:
        self._work = work
        self._failed = self._is_judging = False
        self.not_collected: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """One example fails as often as it is tried, and is not made smaller."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutation", settings.default, derandomize=True, database=None, phases=phases
        )
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._work(self, session.items)
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.not_collected.append(f"{report.nodeid}: {report.longrepr}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """A judge's first failure ends the process, before anything is written about it."""
        if not self._is_judging or call.excinfo is None:
            return
        if not isinstance(call.excinfo.value, pytest.skip.Exception):
            os._exit(FOUND)

    def passes(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return not self._failed

    def judge(self, items: Sequence[pytest.Item], reach: Reach, out: int) -> None:
        """Run these until one fails, which ends the process."""
        self._is_judging = True
        for number, item in enumerate(items):
            os.write(out, f"{number}\n".encode())
            traced = reach.traced[item.nodeid]
            limit_test(traced.seconds, traced.wall_s)
            if not self.passes(item, _after(items, number)):
                os._exit(FOUND)
        limit_test(0, 0)

    def trace(
        self, items: Sequence[pytest.Item], root: Path, packages: Iterable[str]
    ) -> dict[str, Traced]:
        """Run all of these; what passes is found in the answer with what it executed."""
        tested = [f"{root}/{package}/*" for package in packages]
        tests = {item.path.relative_to(root).parts[0] for item in items}
        traces = coverage.Coverage(
            data_file=None,
            config_file=False,
            include=[*tested, *(f"{root}/{folder}/*" for folder in tests)],
            omit=[f"{Path(__file__).parent}/*"],
        )
        costs: dict[str, tuple[float, float]] = {}
        traces.start()
        for number, item in enumerate(items):
            traces.switch_context(item.nodeid)
            cpu_s, wall_s = time.process_time(), time.monotonic()
            if self.passes(item, _after(items, number)):
                took_s = time.process_time() - cpu_s, time.monotonic() - wall_s
                costs[item.nodeid] = round(took_s[0], 4), round(took_s[1], 4)
        traces.stop()
        return _traced(traces.get_data(), costs, items, root, tuple(packages))


def _after(items: Sequence[pytest.Item], number: int) -> pytest.Item | None:
    return items[number + 1] if number + 1 < len(items) else None


def _traced(
    data: coverage.CoverageData,
    costs: dict[str, tuple[float, float]],
    items: Sequence[pytest.Item],
    root: Path,
    packages: tuple[str, ...],
) -> dict[str, Traced]:
    found = {test: Traced(*cost, {}, {}) for test, cost in costs.items()}
    for item in items:
        if item.nodeid in found:
            own = str(item.path.relative_to(root))
            found[item.nodeid].files[own] = digest_of(item.path)
    for file in data.measured_files():
        path = Path(file)
        short = str(path.relative_to(root))
        masks: dict[str, int] = {}
        for line, tests in data.contexts_by_lineno(file).items():
            for test in tests:
                masks[test] = masks.get(test, 0) | 1 << line
        for test, mask in masks.items():
            if test in found:
                found[test].files[short] = digest_of(path)
                if short.split("/", 1)[0] in packages:
                    found[test].lines[short] = mask
    return found
