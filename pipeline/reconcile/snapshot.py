"""The cut: which offsets of every topic are looked at, so that a service may go on meanwhile.

What is committed is asked first, and what had been written by then last, in this order: how far the
group is; what is on its way between the hops; the ends of outputs and dead letters; the ends of the
inputs. So whatever was decided below the committed offsets is seen, and whatever came later is
known to be later. An end is waited for until every transaction before it has ended.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from pipeline.admin import KafkaAdmin, KafkaPartition, OffsetSpan
from pipeline.errors import BROKER, CONTRADICTION, PipelineError
from pipeline.reconcile.scope import ReconcileScope

Spans = Mapping[KafkaPartition, OffsetSpan]

_STABLE_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.2


class DecidedRange(NamedTuple):
    """An input partition: what it holds, and which part of it has been decided."""

    span: OffsetSpan
    committed: int


class Snapshot(NamedTuple):
    """Offsets of every topic."""

    cluster_id: str
    inputs: Mapping[KafkaPartition, DecidedRange]
    outputs: Spans
    letters: Spans
    keeps_time: bool
    """Whether outputs have the times of their inputs."""

    @property
    def is_complete(self) -> bool:
        """Whether the inputs are there from their beginning."""
        return all(judged.span.begin == 0 for judged in self.inputs.values())


def take_cut(admin: KafkaAdmin, plan: ReconcileScope, carried: Callable[[Spans], None]) -> Snapshot:
    """Ask the broker in the order that makes it one cut; `carried` reads what is between hops."""
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
    # To have looked at nothing and to have found nothing are not the same.
    if not any(span.begin < min(span.end, end) for span, end in judged.values()):
        raise PipelineError(
            f"{', '.join(plan.inputs)} hold nothing any more of what group {plan.group} has "
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
    """What the second hop has not decided yet."""
    assert plan.carried is not None
    partitions = admin.partitions([plan.carried])
    committed = admin.committed(plan.carried)
    ends = _stable(admin, partitions)
    # What is decided is deleted while the service goes on.
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
    """The ends of all that is written by now, once no transaction before them is open."""
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
