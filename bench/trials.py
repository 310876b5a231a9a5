"""Trials: the comparisons of `make bench`, and how their arms alternate."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bench.arms import (
    FLINK,
    FLINK_OFTEN,
    FLINK_ROCKSDB,
    FLOOR,
    IN_PYTHON,
    KAFKA_STREAMS,
    NATIVE_FLOOR,
    PLAIN_FIELDS,
    QUIX,
    RINGFENCE,
    Arm,
)
from bench.progress import Pace
from bench.results import Comparison
from bench.venue import Venue
from bench.workload import Workload

TITLES: Final[Mapping[str, str]] = {
    "ringfence": "Ringfence",
    "ringfence_python": "Ringfence, fast path in Python",
    "floor": "floor: pass-through, no deduplication",
    "native_floor": "the same in compiled code",
    "kafka_streams": "Kafka Streams, the same ring",
    "flink": "Flink, the same ring, a checkpoint a second",
    "flink_often": "Flink, ten checkpoints a second",
    "flink_rocksdb": "Flink, the ring in RocksDB",
    "plain_fields": "the same without escaping",
    "quix": "Quix Streams, state by key",
}


class Trial(NamedTuple):
    """One comparison: its workload, arms, and the configuration of Ringfence and the floor."""

    key: str
    title: str
    workload: Workload
    arms: tuple[Arm, ...]
    setup: Mapping[str, object]

    def settings(self) -> dict[str, object]:
        """Return the settings to show with the results."""
        work = self.workload
        return {
            "messages": f"{work.records:,}",
            "bytes": work.value_bytes,
            "duplicates": f"{work.duplicate_share:.0%}",
            "partitions": work.partitions,
            "batch_records": 10_000,
            "id_cache_size": 20_000,
            **self.setup,
        }


TRIALS: Final = (
    Trial(
        "peers",
        "Batches of 10,000",
        Workload(),
        (FLOOR, RINGFENCE, NATIVE_FLOOR, IN_PYTHON, KAFKA_STREAMS),
        {},
    ),
    Trial("flink", "Flink", Workload(), (RINGFENCE, FLINK, FLINK_OFTEN, FLINK_ROCKSDB), {}),
    Trial("quix", "State by key", Workload(records=400_000), (RINGFENCE, QUIX), {}),
    Trial("batch", "Batches of 1,000", Workload(), (FLOOR, RINGFENCE), {"batch_records": 1_000}),
    Trial(
        "drop",
        "Nine of ten are duplicates",
        Workload(duplicate_share=0.9),
        (FLOOR, RINGFENCE),
        {"on_duplicate": "drop"},
    ),
    Trial(
        "fields",
        "Ids of two fields, escaped",
        Workload(records=400_000, id_in_value=True),
        (RINGFENCE, PLAIN_FIELDS),
        {"id": "{key}{json:/id}"},
    ),
)


def warm_up(venue: Venue, workload: Workload, say: Callable[[str], None]) -> None:
    """Run turns that do not count: a new broker's JIT takes some millions of records to warm up."""
    for arm in 2 * (FLOOR, RINGFENCE):
        say(f"warming up: {TITLES[arm.name]}")
        venue.pace(arm, workload)


def compared(venue: Venue, trial: Trial, rounds: int, say: Callable[[str], None]) -> Comparison:
    """Alternate the arms, every second round in reverse, so that none always follows the same."""
    venue.input(trial.workload)
    paces: dict[str, list[Pace]] = {arm.name: [] for arm in trial.arms}
    for number in range(rounds):
        for arm in trial.arms[:: -1 if number % 2 else 1]:
            pace = venue.pace(arm, trial.workload, **trial.setup)
            paces[arm.name].append(pace)
            title = f"{trial.title}: {TITLES[arm.name]}"
            used = f"{pace.cpu_us:.1f} µs of CPU a message, the others {pace.others_us:.1f}"
            say(f"{title}: {pace.second_half:,.0f}/s, {used}")
    return Comparison(trial.title, trial.settings(), paces)
