"""Long tests (`make test-long`): runs for hours, with new seeds each time, and prints a table.

All seeds derive from one number, which is printed; SEED=n repeats a run. When a part fails, the
others still run.
"""

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tools.suites import run_module

SEEDS: Final = 1_000_000_000
PYTEST: Final = ("pytest", "-q", "--tb=short")


class Part(NamedTuple):
    """A module to run, and the variables added to its environment."""

    name: str
    module: tuple[str, ...]
    environment: Mapping[str, str] = {}


def parts(seed: int) -> Sequence[Part]:
    """Return all parts, the shortest first."""
    soaks = (("--workers", "2"), ("--scope", "address"), ("--brokers", "3"))
    return (
        Part(
            "fuzz",
            (*PYTEST, "tests/fuzz"),
            {"RINGFENCE_FUZZ_RECORDS": "100000", "RINGFENCE_FIRST_SEED": str(seed)},
        ),
        Part(
            "payloads with a schema",
            (*PYTEST, "-s", "tests/broker/test_schemas.py"),
            {"RINGFENCE_SCHEMA_RECORDS": "100000", "RINGFENCE_SEED": str(seed)},
        ),
        Part(
            "random histories on Spark",
            (*PYTEST, "tests/spark/test_histories.py"),
            {"RINGFENCE_HISTORY_RECORDS": "1000000", "RINGFENCE_FIRST_SEED": str(seed)},
        ),
        Part("long tests", (*PYTEST, "-m", "long")),
        Part(
            "random examples of the cases",
            (*PYTEST, f"--hypothesis-seed={seed}", "tests/cases"),
            {"RINGFENCE_EXAMPLES_FACTOR": "20"},
        ),
        Part(
            "requests to the API",
            (*PYTEST, "-m", "broker", "tests/broker/test_openapi.py"),
            {"RINGFENCE_API_EXAMPLES": "25"},
        ),
        Part(
            "late requests",
            (
                *(*PYTEST, "-n", "2", "--dist", "loadgroup", "-m", "broker"),
                "tests/broker/test_late_requests.py",
            ),
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
        Part("versions of Kafka", ("tools.versions",)),
    )


def main(arguments: Sequence[str]) -> int:
    """Run all parts, or those whose names contain an argument; return 1 if one failed."""
    seed = int(os.environ.get("SEED") or secrets.randbelow(SEEDS))
    print(f"SEED={seed}", flush=True)
    words = [word.lower() for word in arguments]
    chosen = [p for p in parts(seed) if not words or any(word in p.name for word in words)]
    lines, has_failed = [], not chosen
    for part in chosen:
        print(f"\n── {part.name} ──", flush=True)
        began_s = time.monotonic()
        code, cpu_s = run_module(part.module, part.environment)
        has_failed = has_failed or code != 0
        result, seconds = "FAILED" if code else "passed", time.monotonic() - began_s
        lines.append(f"{part.name:<26}{result}{seconds:>9.0f}{cpu_s:>9.0f}")
    print("\n".join((f"\n{'part':<26}      {'seconds':>9}{'CPU':>9}", *lines)))
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
