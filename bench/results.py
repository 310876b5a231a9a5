"""Results: what was measured, as values; ratios are taken within a round, then min, median, max."""

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
from service.clock import product_version

FOLDER = Path(__file__).with_name("results")
LATEST = FOLDER / "latest.json"


class Spread(NamedTuple):
    """The least, the middle and the most of several rounds."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of at least one value."""
        ordered = sorted(values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])


class Comparison(NamedTuple):
    """One arm against another under one heading, round by round."""

    name: str
    settings: Mapping[str, object]
    rounds: Mapping[str, list[Pace]]
    """Paces by arm; round n of one arm ran beside round n of the others."""

    def rates(self, arm: str) -> Spread:
        """Records a second of the second halves, when every arm is warm."""
        return Spread.of(pace.second_half for pace in self.rounds[arm])

    def ratio(self, arm: str, other: str) -> Spread:
        """How many times as fast as the other."""
        pairs = zip(self.rounds[arm], self.rounds[other], strict=True)
        return Spread.of(mine.second_half / theirs.second_half for mine, theirs in pairs)


@dataclass
class Results:
    """One run of the benchmarks."""

    comparisons: list[Comparison] = field(default_factory=list)
    latencies: dict[str, dict[str, list[Latency]]] = field(default_factory=dict)
    """By rate, then by arm, a value for each round."""
    queues: list[Queue] = field(default_factory=list)
    """Artemis, a value for each round."""
    asked: Mapping[str, object] | None = None
    """What it costs the loop that its API is asked, as a finding tells it."""
    listed: Mapping[str, object] | None = None
    """The same of lists of very many addresses."""

    def ratios(self) -> dict[str, Spread]:
        """Every headline ratio by its name, `ringfence/floor` and so on."""
        found = {}
        for comparison in self.comparisons:
            for other in comparison.rounds:
                if other != "ringfence":
                    name = f"ringfence/{other}"
                    key = name if name not in found else f"{name} ({comparison.name})"
                    found[key] = comparison.ratio("ringfence", other)
        return found

    def write(self, path: Path = LATEST) -> None:
        """As JSON, with what it was measured on."""
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
    """What was measured, and on what."""
    return {
        "ringfence": product_version(),
        "python": platform.python_version(),
        "confluent_kafka": str(confluent_kafka.__version__),
        "librdkafka": confluent_kafka.libversion()[0],
        "rocksdict": version("rocksdict"),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}",
    }
