"""Start time of the command line: wall and CPU time of `ringfence --help`, and what it imports.

Not a test, since a busy machine takes longer. `python -m bench.starting` prints the times beside
the budget of 200 ms, and the slowest modules.
"""

import resource
import statistics
import subprocess
import sys
import time
from typing import Final

BUDGET_MS: Final = 200
ROUNDS: Final = 10
LOADED: Final = 8
PROGRAM: Final = (sys.executable, "-m", "service.main.entry")


def main() -> None:
    """Measure and print."""
    for words in (["--help"], ["status", "--help"], ["redrive", "start", "--help"]):
        print(f"ringfence {' '.join(words)}: {timed(words)}")
    print("\nModules that --help imports, by their own time:")
    for line in slowest():
        print(f"  {line}")


def timed(words: list[str]) -> str:
    """Return median wall time and mean CPU time of some rounds, after one that warms the disk."""
    _run(words)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    walls_ms = [_run(words) for _ in range(ROUNDS)]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    wall_ms = statistics.median(walls_ms)
    return f"{wall_ms:.0f} ms wall, {cpu_s * 1000 / ROUNDS:.0f} ms CPU (budget {BUDGET_MS} ms)"


def slowest() -> list[str]:
    """Return the modules that take longest to import, according to `-X importtime`."""
    program = [sys.executable, "-X", "importtime", "-m", "service.main.entry", "--help"]
    report = subprocess.run(program, capture_output=True, text=True, check=True).stderr
    rows = [line.removeprefix("import time:").split("|") for line in report.splitlines()[1:]]
    costs = sorted(((int(row[0]), row[2].strip()) for row in rows), reverse=True)
    return [f"{cost_us / 1000:6.1f} ms  {name}" for cost_us, name in costs[:LOADED]]


def _run(words: list[str]) -> float:
    started_s = time.perf_counter()
    subprocess.run([*PROGRAM, *words], stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - started_s) * 1000


if __name__ == "__main__":
    main()
