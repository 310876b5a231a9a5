"""Registry series: a schema registry in trouble for ten minutes, and a second route at full load.

The first route takes its ids from payloads of many schemas, which trickle in all the time. The
second route reads no schemas, and has more records than it can decide. The registry is in each
trouble for a while, and healthy between two of them: the rate is compared with those of the healthy
spells before and after. The series fails if a process of the service ends, or if a record of the
first route does not have exactly one fate. One round has to be enough.
"""

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from typing import Final, NamedTuple
from urllib.error import HTTPError

from confluent_kafka import TopicPartition

from bench.arms import RINGFENCE, Running, Stage, running
from bench.asking import ask, await_ready
from bench.finding import Figure, Finding, Row, shown
from bench.flow import flowing
from bench.machine import MIB, cpu_s, memory
from bench.progress import committed, watcher_of
from bench.registry import TROUBLES, TroubledRegistry
from bench.series.stages import LOOP
from bench.session import Session
from bench.trickle import NEW_EVERY, PER_S, Trickle, fates
from bench.workload import Client, Workload
from tools.processes import children_of

TROUBLE_S: Final = 600.0
"""How long all troubles last together."""
HEALTHY_S: Final = 40.0
"""How long the registry is healthy before, between and after them."""
_SETTLING_S: Final = 5.0
"""How much of a spell is not measured, unless it is short."""
_SAMPLE_S: Final = 0.5
_TIMEOUT_S: Final = 10.0
_DECIDED_S: Final = 300.0
"""How long the first route may take for what is left once the registry is healthy for good."""

_LOAD: Final = Workload(records=400_000)
_PARTITIONS: Final = _LOAD.partitions
_AHEAD: Final = 500_000
_SEGMENT: Final = 32 * MIB
_SHORT: Final = {"segment.bytes": str(_SEGMENT), "retention.bytes": str(8 * _SEGMENT)}
"""The broker deletes what was read; all that the writer is ahead takes far less."""

_TITLE: Final = "A schema registry in trouble, and a second route at full load: Ringfence"
_NAME: Final = "the registry is"
_RATIO: Final = "second route / healthy"
_CAUSE: Final = re.compile(r"the schema registry at \S+, which ([^;]*)")
_NUMBER: Final = re.compile(r"schema \d+")


class Sample(NamedTuple):
    """What is seen at a moment."""

    at_s: float
    decided: int
    """Records of the second route that are decided."""
    ahead: int
    """Those that are not, though the broker has them."""
    undecided: int
    """The same of the first route."""
    is_ready: bool
    causes: frozenset[str]
    """Why the first route waits for the registry, as `/readyz` says; empty if it does not wait."""
    loop_s: float
    """CPU time of the loop's thread."""
    bytes: int
    """Resident bytes of all processes of the service."""


class Spell(NamedTuple):
    """The samples of a time in which the registry was in one condition."""

    samples: list[Sample]

    @property
    def rate(self) -> float:
        """Records of the second route a second."""
        first, last = self._ends
        return (last.decided - first.decided) / (last.at_s - first.at_s)

    @property
    def loop_us(self) -> float:
        """CPU time of the loop's thread for a record of the second route."""
        first, last = self._ends
        return (last.loop_s - first.loop_s) * 1e6 / max(1, last.decided - first.decided)

    @property
    def _ends(self) -> tuple[Sample, Sample]:
        last, begins_s = self.samples[-1], self.samples[0].at_s
        settled_s = begins_s + min(_SETTLING_S, (last.at_s - begins_s) / 4)
        return next(each for each in self.samples if each.at_s >= settled_s), last


def registry(session: Session) -> Finding:
    """Go through all troubles; each has a row."""
    venue = session.venue
    setup = {"id": "{schema:/id}", "missing_id": "dead_letter", "on_duplicate": "drop"}
    with (
        closing(TroubledRegistry()) as troubled,
        venue.stage(RINGFENCE, "", _PARTITIONS, registry=troubled.url, **setup) as planned,
    ):
        # Topics that begin with the name of the group are deleted after the stage.
        first, second = (f"{planned.group}-{name}" for name in ("first", "second"))
        stage = planned._replace(input=first, beside=second)
        venue.create(first, _PARTITIONS)
        for topic in (second, stage.output_beside):
            venue.create(topic, _PARTITIONS, _SHORT)
        trickle = Trickle(venue.client, first, _PARTITIONS)
        with (
            flowing(_LOAD, venue.client, second, stage.group, _AHEAD) as check_flow,
            running(RINGFENCE, stage) as one,
            closing(_Observer(venue.client, stage, one, check_flow)) as observer,
        ):
            with trickle.running():
                rows = _rows(session, troubled, observer)
            decided_s = observer.await_decided()
        topics = (stage.output, stage.dead_letter)
        decided = chain.from_iterable(venue.read(topic, _PARTITIONS) for topic in topics)
        found = fates(trickle.schemas, decided)
    settings = {
        "first route, a second": PER_S,
        "of these with a new schema": PER_S / NEW_EVERY,
        "sent": f"{len(trickle.schemas):,}",
        **{fate: f"{count:,}" for fate, count in found.items()},
        "all decided after, s": round(decided_s, 1),
        "processes that ended": 0,
        "partitions": _PARTITIONS,
    }
    figure = Figure(_TITLE, _NAME, [_RATIO], "of the rate while it is healthy", bars=True)
    return Finding(_TITLE, settings, rows, [figure])


def _rows(session: Session, troubled: TroubledRegistry, observer: "_Observer") -> list[Row]:
    healthy_s = HEALTHY_S * session.scale
    trouble_s = TROUBLE_S / len(TROUBLES) * session.scale
    rows: list[Row] = []
    observer.spell(healthy_s)  # the start does not count
    before = observer.spell(healthy_s)
    for trouble in TROUBLES:
        with troubled.in_trouble(trouble):
            during = observer.spell(trouble_s)
        after = observer.spell(healthy_s)
        rows.append({_NAME: trouble.name, **row_of(before, during, after)})
        session.say(", ".join(f"{name}: {shown(cell)}" for name, cell in rows[-1].items()))
        before = after
    return rows


def row_of(before: Spell, during: Spell, after: Spell) -> Row:
    """Compare a spell of trouble with the healthy ones before and after it."""
    healthy = (before.rate + after.rate) / 2
    causes = Counter(cause for each in during.samples for cause in each.causes)
    count = len(during.samples)
    back_s = after.samples[0].at_s
    caught_up_s = [each.at_s - back_s for each in after.samples if each.undecided < 2 * PER_S]
    return {
        "second route, a second": during.rate,
        "while healthy": healthy,
        _RATIO: during.rate / healthy,
        "loop, µs a message": during.loop_us,
        "loop / healthy": during.loop_us * 2 / (before.loop_us + after.loop_us),
        "ahead, at least": min(
            each.ahead for spell in (before, during, after) for each in spell.samples
        ),
        "ready, %": 100 * sum(each.is_ready for each in during.samples) / count,
        "first route waits, %": 100
        * sum(map(bool, (each.causes for each in during.samples)))
        / count,
        "caught up after, s": min(caught_up_s, default=None),
        "memory at most, MiB": max(each.bytes for each in during.samples) / MIB,
        "it waits for a registry that": causes.most_common(1)[0][0] if causes else None,
    }


class _Observer:
    """Takes the samples, and raises as soon as a process has ended."""

    def __init__(
        self, client: Client, stage: Stage, one: Running, check_flow: Callable[[], None]
    ) -> None:
        self._stage, self._one, self._check_flow = stage, one, check_flow
        self._watcher = watcher_of(client, stage.group)
        await_ready(stage, one.check)
        self._workers = children_of(one.pid)
        self._decided = Counter[str]()

    def close(self) -> None:
        """Close the client."""
        self._watcher.close()

    def spell(self, seconds: float) -> Spell:
        """Take samples for some seconds."""
        samples = [self._sample()]
        while samples[-1].at_s - samples[0].at_s < seconds:
            time.sleep(_SAMPLE_S)
            samples.append(self._sample())
        return Spell(samples)

    def await_decided(self) -> float:
        """Wait until all records of the first route are decided; return how long that took."""
        began_s = time.monotonic()
        while (sample := self._sample()).undecided:
            if sample.at_s - began_s > _DECIDED_S:
                raise TimeoutError(f"{sample.undecided:,} records are not decided: {sample}")
            time.sleep(_SAMPLE_S)
        return sample.at_s - began_s

    def _sample(self) -> Sample:
        self._one.check()
        self._check_flow()
        if self._workers != children_of(self._one.pid):
            log = (self._stage.folder / "ringfence-0.log").read_text(encoding="utf-8")
            raise RuntimeError(f"a worker has ended:\n{log[-2000:]}")
        first, first_end = self._offsets(self._stage.input)
        second, second_end = self._offsets(self._stage.beside)
        is_ready, causes = self._ready()
        return Sample(
            time.monotonic(),
            second,
            second_end - second,
            first_end - first,
            is_ready,
            causes,
            cpu_s(self._one.pid)[LOOP],
            memory(self._one.pid).now,
        )

    def _offsets(self, topic: str) -> tuple[int, int]:
        """Return how many records of a topic are decided, and how many it has."""
        partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
        self._decided[topic] = max(self._decided[topic], committed(self._watcher, partitions))
        ends = [self._watcher.get_watermark_offsets(each, _TIMEOUT_S) for each in partitions]
        return self._decided[topic], sum(end for _, end in ends)

    def _ready(self) -> tuple[bool, frozenset[str]]:
        """Return whether `/readyz` is ok, and why the first route waits for the registry."""
        try:
            is_ready, answer = True, ask(self._stage, "/readyz")
        except HTTPError as error:
            is_ready, answer = False, error.read()
        details = [check["detail"] for check in json.loads(answer).get("checks", ())]
        causes = [cause for each in details for cause in _CAUSE.findall(each)]
        return is_ready, frozenset(_NUMBER.sub("schema N", cause) for cause in causes)
