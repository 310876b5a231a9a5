"""Results of `make bench`; ratios are taken within a round, then min, median and max of these."""

import json
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from bench.artemis import Queue
from bench.latency import Latency
from bench.progress import Pace
from ringfence_service.clock import product_version

FOLDER = Path(__file__).with_name("results")
LATEST = FOLDER / "latest.json"


class Spread(NamedTuple):
    """Minimum, median and maximum of several rounds."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Return the spread of at least one value."""
        ordered = sorted(values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])


class Comparison(NamedTuple):
    """The arms of one trial, round by round."""

    name: str
    settings: Mapping[str, object]
    rounds: Mapping[str, list[Pace]]
    """Paces by arm; round n of an arm ran right before or after round n of the others."""

    def rates(self, arm: str) -> Spread:
        """Return records per second over the second halves, when every arm is warm."""
        return Spread.of(pace.second_half for pace in self.rounds[arm])

    def cpu_us(self, arm: str) -> Spread:
        """Return the CPU time of a record in microseconds, over the second halves."""
        return Spread.of(pace.cpu_us for pace in self.rounds[arm])

    def others_us(self, arm: str) -> Spread:
        """Return the same of all processes that are not the arm's: the broker's above all."""
        return Spread.of(pace.others_us for pace in self.rounds[arm])

    def ratio(self, arm: str, other: str) -> Spread:
        """Return how many times as fast as the other an arm was."""
        pairs = zip(self.rounds[arm], self.rounds[other], strict=True)
        return Spread.of(one.second_half / base.second_half for one, base in pairs)


@dataclass
class Results:
    """One run of the benchmarks."""

    comparisons: list[Comparison] = field(default_factory=list)
    latencies: dict[str, dict[str, list[Latency]]] = field(default_factory=dict)
    """By rate, then by arm: a value for each round."""
    queues: list[Queue] = field(default_factory=list)
    """Artemis, a value for each round."""
    asked: Mapping[str, object] | None = None
    """The cost of API requests to the loop: a finding as JSON."""
    listed: Mapping[str, object] | None = None
    """The same for requests that list very many addresses."""

    def ratios(self) -> dict[str, Spread]:
        """Return the ratios by their names, such as `ringfence/floor`."""
        found = {}
        for comparison in self.comparisons:
            for other in comparison.rounds:
                if other != "ringfence":
                    name = f"ringfence/{other}"
                    key = name if name not in found else f"{name} ({comparison.name})"
                    found[key] = comparison.ratio("ringfence", other)
        return found

    def write(self, path: Path = LATEST) -> None:
        """Write the results as JSON, with the versions they were measured with."""
        document = {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            "ratios": {name: spread._asdict() for name, spread in self.ratios().items()},
            "comparisons": [_comparison(each) for each in self.comparisons],
            "latency_ms": {
                rate: {
                    arm: {
                        key: Spread.of(getattr(each, key) for each in rounds)._asdict()
                        for key in ("p50", "p99", "p99_9")
                    }
                    for arm, rounds in arms.items()
                }
                for rate, arms in self.latencies.items()
            },
            "artemis_messages_per_s": [queue.rate for queue in self.queues],
            "asked": self.asked,
            "listed": self.listed,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _comparison(comparison: Comparison) -> dict[str, object]:
    return {
        "name": comparison.name,
        "settings": dict(comparison.settings),
        "records_per_s": {
            arm: {"rounds": [pace._asdict() for pace in paces], **comparison.rates(arm)._asdict()}
            for arm, paces in comparison.rounds.items()
        },
    }


def versions() -> dict[str, str]:
    """Return the versions of Ringfence and its libraries, and the kind of machine."""
    return {
        "ringfence": product_version(),
        "python": platform.python_version(),
        "confluent_kafka": str(confluent_kafka.__version__),
        "librdkafka": confluent_kafka.libversion()[0],
        "rocksdict": version("rocksdict"),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
    }
