"""Both paths on the same random batches: verdicts, outputs, changelog, origins, counts."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings

from tests.support.deciding import World
from tests.support.native import native_deciding, needs_native
from tests.unit.service.dedup.test_evaluator import batches, new_worlds, plans

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
@given(given_batches=batches, world=new_worlds)
def test_both_paths_decide_alike(
    given_batches: list[list[Any]], world: Callable[[], World]
) -> None:
    expected = plans(world(), given_batches)
    with native_deciding():
        found = plans(world(), given_batches)
    assert [told(plan) for plan in found] == [told(plan) for plan in expected]
