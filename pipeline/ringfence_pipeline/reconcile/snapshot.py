"""Snapshot: the offsets of every topic to reconcile, while the service keeps running.

Offsets are read in this order: the group's committed offsets; the records between the stages; the
ends of outputs and dead letters; the ends of the inputs. So every decision below the committed
offsets is in the snapshot, and every later record is known to be later. Each end waits until all
transactions before it have ended.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ringfence_pipeline.admin import KafkaAdmin, KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import BROKER, CONTRADICTION, PipelineError
from ringfence_pipeline.reconcile.scope import ReconcileScope

Spans = Mapping[KafkaPartition, OffsetSpan]

_STABLE_WITHIN_S: Final = 60.0
"""How long a run waits for open transactions to end: six times the service's default timeout.

The broker aborts a transaction after its timeout (`service.transaction_timeout_ms`), so one
that is open for longer is taken to hang. A service with a larger one may need longer.
"""
_LOOK_EVERY_S: Final = 0.2
"""How often the broker is asked for the stable ends, one request for all partitions.

Transactions of the service are short, so with a longer pause the run would mostly sleep.
"""


class DecidedRange(NamedTuple):
    """An input partition: its offsets, and the committed offset."""

    span: OffsetSpan
    committed: int


class Snapshot(NamedTuple):
    """The offsets of every topic."""

    cluster_id: str
    inputs: Mapping[KafkaPartition, DecidedRange]
    outputs: Spans
    letters: Spans
    keeps_time: bool
    """Whether outputs have the timestamps of their inputs."""

    @property
    def is_complete(self) -> bool:
        """Whether the inputs have all offsets from 0 on."""
        return all(judged.span.begin == 0 for judged in self.inputs.values())


def take_snapshot(
    admin: KafkaAdmin, plan: ReconcileScope, carried: Callable[[Spans], None]
) -> Snapshot:
    """Read the offsets in the order above; `carried` reads the records between the stages.

    Raises PipelineError when the group has committed nothing, when no decided input is left, or
    when a transaction stays open.
    """
    committed = admin.committed(plan.group)
    if plan.carried is not None:
        carried(_carried(admin, plan))
    written = admin.partitions(plan.outputs | plan.letters)
    spans = _spans(admin, written, _stable(admin, written))
    inputs = admin.partitions(plan.inputs)
    begins, ends = admin.begins(inputs), admin.stable_ends(inputs)
    if not any(partition in committed for partition in inputs):
        raise PipelineError(
            f"group {plan.group} has committed nothing on {', '.join(plan.inputs)}: check "
            "service.group_id, and that the service has run",
            exit_code=CONTRADICTION,
        )
    judged = {
        each: DecidedRange(
            OffsetSpan(begins[each], max(begins[each], ends[each])), committed.get(each, 0)
        )
        for each in inputs
    }
    # An empty range must not pass as a range without violations.
    if not any(span.begin < min(span.end, end) for span, end in judged.values()):
        raise PipelineError(
            f"{', '.join(plan.inputs)} no longer have any record that group {plan.group} has "
            "decided, so there is nothing to prove: reconcile while retention keeps the inputs",
            exit_code=CONTRADICTION,
        )
    return Snapshot(
        admin.cluster_id(),
        judged,
        _of(spans, plan.outputs),
        _of(spans, plan.letters),
        not admin.appended(plan.outputs),
    )


def _carried(admin: KafkaAdmin, plan: ReconcileScope) -> Spans:
    """Return the records that the second stage has not decided yet."""
    assert plan.carried is not None
    partitions = admin.partitions([plan.carried])
    committed = admin.committed(plan.carried)
    ends = _stable(admin, partitions)
    # The service deletes decided records while this runs.
    begins = admin.begins(partitions)
    return {
        each: OffsetSpan(min(max(begins[each], committed.get(each, 0)), ends[each]), ends[each])
        for each in partitions
    }


def _spans(
    admin: KafkaAdmin, partitions: Iterable[KafkaPartition], ends: Mapping[KafkaPartition, int]
) -> Spans:
    begins = admin.begins(partitions)
    return {each: OffsetSpan(min(begins[each], end), end) for each, end in ends.items()}


def _of(spans: Spans, topics: Collection[str]) -> Spans:
    return {each: span for each, span in spans.items() if each.topic in topics}


def _stable(
    admin: KafkaAdmin, partitions: Collection[KafkaPartition]
) -> Mapping[KafkaPartition, int]:
    """Return the current ends, once no transaction before them is open.

    Raises PipelineError when one stays open too long.
    """
    ends = admin.ends(partitions)
    deadline_s = time.monotonic() + _STABLE_WITHIN_S
    while True:
        stable = admin.stable_ends(partitions)
        held = sorted({each.topic for each in partitions if stable[each] < ends[each]})
        if not held:
            return ends
        if time.monotonic() > deadline_s:
            raise PipelineError(
                f"a transaction has been open in {', '.join(held)} for {_STABLE_WITHIN_S:.0f} s: "
                "find it with kafka-transactions.sh find-hanging, and abort it there",
                exit_code=BROKER,
            )
        time.sleep(_LOOK_EVERY_S)
