"""Both paths on the same random batches: verdicts, outputs, changelog, origins, counts."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deciding import World, cluster_of
from tests.support.native import native_deciding, needs_native
from tests.unit.service.dedup.test_evaluator import ROUTE, batches, plans

pytestmark = needs_native


def told(plan: Any) -> tuple[object, ...]:
    """All that a plan does, without the objects that differ from path to path."""
    sealed = [each.address for each in plan.sealed]
    outputs = [(*output[:7], list(output[7])) for output in plan.outputs]
    tally = plan.tally
    return (
        outputs,
        plan.edits,
        plan.next_offsets,
        plan.times_ms,
        sealed,
        tally,
        sorted(tally.distances_ms),
    )


@settings(max_examples=150, deadline=None)
@given(
    given_batches=batches,
    capacity=st.sampled_from([0, 1, 2, 3, 20]),
    on_duplicate=st.sampled_from(["dead_letter", "drop", "mark"]),
    address=st.sampled_from(["fixed", "{header:address}", "{key}", "{key}{header:other}"]),
    output=st.sampled_from(["{topic}.unique", "out.{address}", "out.{header:other}"]),
    partitions=st.sampled_from([1, 3]),
)
def test_both_paths_decide_alike(
    given_batches: list[list[Any]],
    capacity: int,
    on_duplicate: str,
    address: str,
    output: str,
    partitions: int,
) -> None:
    allowed = ("out.a", "out.b", "out.fixed", "out.k")
    route = replace(ROUTE, address=address, output=output, allowed_outputs=allowed)
    topics = {name.replace(".", "_"): partitions for name in (*allowed, "orders.unique")}

    def world() -> World:
        addresses = {"#": {"id_cache_size": capacity, "on_duplicate": on_duplicate}}
        return World(route, addresses, cluster_of(**topics, orders_dlq=3))

    expected = plans(world(), given_batches)
    with native_deciding():
        found = plans(world(), given_batches)
    assert [told(plan) for plan in found] == [told(plan) for plan in expected]
