"""`make test-long`: what takes hours, with new seeds each time, and a table of what became of it.

The seeds follow from one number, which is printed; SEED=n repeats a run. A part that fails is no
reason to leave out the others.
"""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tools.suites import children_cpu_s

SEEDS: Final = 1_000_000_000
PYTEST: Final = ("pytest", "-q", "--tb=short")


class Part(NamedTuple):
    """One module that is run, and what it finds in its environment."""

    name: str
    module: tuple[str, ...]
    environment: Mapping[str, str] = {}


def parts(seed: int) -> Sequence[Part]:
    """All of it, the shortest first."""
    soaks = (("--workers", "2"), ("--scope", "address"), ("--brokers", "3"))
    return (
        Part(
            "fuzz",
            (*PYTEST, "tests/fuzz"),
            {"RINGFENCE_FUZZ_RECORDS": "100000", "RINGFENCE_FIRST_SEED": str(seed)},
        ),
        Part("long tests", (*PYTEST, "-m", "long")),
        Part(
            "late requests",
            (*PYTEST, "-n", "3", "-m", "broker", "tests/broker/test_late_requests.py"),
            {"RINGFENCE_LATE_REQUESTS": "all"},
        ),
        *(
            Part(
                f"soak {' '.join(soak)}",
                ("tests.soak", "--seconds", "600", "--seed", str(seed + number), *soak),
            )
            for number, soak in enumerate(soaks)
        ),
        Part(
            "simulation",
            (*PYTEST, "-s", "-m", "simulation", "tests/simulation"),
            {"RINGFENCE_SIM_RUNS": "50000", "RINGFENCE_FIRST_SEED": str(seed)},
        ),
        Part("simulation's mutants", ("tests.simulation.mutants",)),
        Part("mutants", ("tests.mutation",)),
        Part("versions of Kafka", ("tools.versions",)),
    )


def main(arguments: Sequence[str]) -> int:
    """Run all parts, or those whose names contain a word; 1 when one of them failed."""
    seed = int(os.environ.get("SEED") or secrets.randbelow(SEEDS))
    print(f"SEED={seed}", flush=True)
    words = [word.lower() for word in arguments]
    chosen = [p for p in parts(seed) if not words or any(word in p.name for word in words)]
    lines, has_failed = [], not chosen
    for part in chosen:
        print(f"\n── {part.name} ──", flush=True)
        began_s, cpu_s = time.monotonic(), children_cpu_s()
        command = [sys.executable, "-m", *part.module]
        code = subprocess.run(
            command, check=False, env={**os.environ, **part.environment}
        ).returncode
        has_failed = has_failed or code != 0
        seconds, cpu = time.monotonic() - began_s, children_cpu_s() - cpu_s
        lines.append(f"{part.name:<26}{'FAILED' if code else 'passed'}{seconds:>9.0f}{cpu:>9.0f}")
    print("\n".join((f"\n{'part':<26}      {'seconds':>9}{'CPU':>9}", *lines)))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
