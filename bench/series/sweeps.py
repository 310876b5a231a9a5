"""Sweep series: throughput while one parameter changes and all others are fixed."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.arms import FLOOR, RINGFENCE, Arm
from bench.encoded import Encoding
from bench.finding import Figure, Finding, Row
from bench.results import Comparison
from bench.session import Session
from bench.trials import Trial, compared
from bench.workload import Workload

PLAIN: Final = Workload(records=1_000_000)
_MESSAGES: Final = "messages a second"
_RATIO: Final = "Ringfence / floor"


class Step(NamedTuple):
    """One value of the parameter: the input, and the configuration of the arms."""

    workload: Workload
    setup: Mapping[str, object] = {}


class Sweep(NamedTuple):
    """One series: the parameter that changes, and its steps."""

    title: str
    changes: str
    steps: Mapping[str, Step]
    arms: tuple[Arm, ...] = (FLOOR, RINGFENCE)


_IDS: Final[Sequence[tuple[str, str, Encoding]]] = (
    ("header", "", "json"),
    ("key", "{key}", "json"),
    ("sha256:value", "{sha256:value}", "json"),
    ("json:/id", "{json:/id}", "json"),
    ("schema:/id of Avro", "{schema:/id}", "avro"),
    ("schema:/id of Protobuf", "{schema:/id}", "protobuf"),
)

SWEEPS: Final[Mapping[str, Sweep]] = {
    "batch": Sweep(
        "Batch size: Ringfence and the floor",
        "records in a transaction, at most",
        {
            "100": Step(PLAIN._replace(records=200_000), {"batch_records": 100}),
            "1,000": Step(PLAIN, {"batch_records": 1_000}),
            "10,000": Step(PLAIN, {"batch_records": 10_000}),
        },
    ),
    "size": Sweep(
        "Message size: Ringfence and the floor",
        "size of a value",
        {
            "100 B": Step(PLAIN._replace(value_bytes=100)),
            "1 KiB": Step(PLAIN._replace(records=600_000, value_bytes=1024)),
            "10 KiB": Step(PLAIN._replace(records=120_000, value_bytes=10 * 1024)),
        },
    ),
    "duplicates": Sweep(
        "Share of duplicates: Ringfence and the floor, which copies them",
        "duplicates among the messages",
        {
            "0 %": Step(PLAIN._replace(duplicate_share=0.0)),
            "10 %": Step(PLAIN),
            "50 %": Step(PLAIN._replace(duplicate_share=0.5)),
            "90 %": Step(PLAIN._replace(duplicate_share=0.9)),
            "90 %, dropped": Step(PLAIN._replace(duplicate_share=0.9), {"on_duplicate": "drop"}),
        },
    ),
    "addresses": Sweep(
        "Number of addresses, drawn at random for each message: Ringfence",
        "addresses",
        {
            "1": Step(PLAIN),
            "100": Step(PLAIN._replace(addresses=100)),
            "10,000": Step(PLAIN._replace(records=400_000, addresses=10_000)),
            "100,000": Step(PLAIN._replace(records=300_000, addresses=100_000)),
        },
        arms=(RINGFENCE,),
    ),
    "partitions": Sweep(
        "Partitions of the input, one process: Ringfence and the floor",
        "partitions",
        {str(count): Step(PLAIN._replace(partitions=count)) for count in (1, 4, 12)},
    ),
    "workers": Sweep(
        "Workers of one instance: Ringfence",
        "workers",
        {str(count): Step(PLAIN._replace(partitions=12), {"workers": count}) for count in (1, 2)},
        arms=(RINGFENCE,),
    ),
    "scope": Sweep(
        "Scope, a hundred addresses: Ringfence",
        "scope",
        {
            scope: Step(PLAIN._replace(addresses=100), {"scope": scope})
            for scope in ("partition", "address", "id")
        },
        arms=(RINGFENCE,),
    ),
    "id": Sweep(
        "Where the id comes from, the same messages of JSON, or as Avro and Protobuf: Ringfence",
        "id",
        {
            f"{name}, {size} B": Step(
                PLAIN._replace(value_bytes=size, id_in_value=True, encoding=encoding),
                {"id": template},
            )
            for size in (200, 1024)
            for name, template, encoding in _IDS
        }
        | {
            f"none, {size} B": Step(
                PLAIN._replace(value_bytes=size, id_in_value=True, odd="anonymous")
            )
            for size in (200, 1024)
        },
        arms=(RINGFENCE,),
    ),
}


def swept(session: Session, sweep: Sweep) -> Finding:
    """Measure every step, with its arms in turn."""
    trials = {
        name: Trial(
            name, f"{sweep.changes}: {name}", session.sized(step.workload), sweep.arms, step.setup
        )
        for name, step in sweep.steps.items()
    }
    rows: list[Row] = []
    for name, trial in trials.items():
        found = compared(session.venue, trial, session.rounds, session.say)
        rows.append({sweep.changes: name, **_row(trial, found)})
    for workload in {trial.workload for trial in trials.values()} - {session.sized(PLAIN)}:
        session.venue.forget(workload)
    arms = ["Ringfence", "floor"][: len(sweep.arms)]
    figure = Figure(sweep.title, sweep.changes, arms, f"{_MESSAGES}, warm")
    return Finding(
        sweep.title, shared([trial.settings() for trial in trials.values()]), rows, [figure]
    )


def _row(trial: Trial, found: Comparison) -> Row:
    row: dict[str, object] = {"messages": trial.workload.records}
    row["Ringfence"] = found.rates("ringfence")
    if FLOOR in trial.arms:
        row |= {"floor": found.rates("floor"), _RATIO: found.ratio("ringfence", "floor")}
    return row  # type: ignore[return-value]


def shared(settings: list[dict[str, object]]) -> dict[str, object]:
    """Return the settings that all have in common."""
    first, *others = settings
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in others)}
