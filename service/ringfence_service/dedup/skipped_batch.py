"""Skipped batch: the dead letter that stands for the records of a batch that cannot be read.

It has neither key, value nor headers of a record. Its cause has all offsets, and its envelope the
first of them; nothing is known of the records, so its timestamp is the time of the decision.
"""

from collections.abc import Iterator, Sequence

from ringfence_client.headers import Reason
from ringfence_service.dedup.checks import DecisionContext, output_of
from ringfence_service.dedup.dead_letter import DeadLetterEnvelope, RedrivenRecord
from ringfence_service.dedup.partition import OwnedPartition
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.dedup.route import unrouted
from ringfence_state.model import Rejection


def skip_batch(
    partition: OwnedPartition,
    first: int,
    end: int,
    rules: DecisionContext,
    plan: Plan,
    now_ms: int,
) -> Iterator[Sequence[Output]]:
    """Fill the plan with a dead letter for the offsets from `first` up to, not including, `end`.

    The partition goes on at `end`. The batch counts as one record, whatever it contains.
    """
    source = partition.source
    input_partition = partition.input_partition or unrouted(source, "")
    offsets = f"offsets {first} to {end - 1}"
    cause = f"{offsets} are in a batch that the client could not unpack; an operator skipped it"
    rejection = Rejection(Reason.UNREADABLE_BATCH, cause)
    record = RedrivenRecord(0, *source, first, now_ms, None, None, (), 0)
    letter = DeadLetterEnvelope(source, None).letter(record, (), None, rejection)
    # A partition of by-address belongs to no route, so its dead letter goes to the fallback topic.
    finds = rejection.reason if partition.input_partition else Reason.NO_OUTPUT
    target = rules.output_resolver.dead_letter(
        input_partition, record, letter, None, finds, (source, first), now_ms
    )
    route, tally = input_partition.route.settings.name, plan.tally
    tally.consumed[route] += 1
    tally.dead_letters[route, rejection.reason] += 1
    plan.next_offsets[source] = end
    yield [output_of(record, target, letter, now_ms)]
