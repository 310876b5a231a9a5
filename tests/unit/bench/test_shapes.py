"""The shapes of a ring: whatever they cost, they find the same duplicates."""

from pathlib import Path

import pytest

from bench import shapes


def test_every_shape_finds_the_same_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "STRETCH", 2 * shapes.BATCH)
    monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", None)  # put back what the shapes set
    costs = [shapes.cost(shape, 5_000, tmp_path / shape) for shape in shapes.SHAPES]
    (duplicates,) = {cost.duplicates for cost in costs}
    assert 300 < duplicates < 700
    assert all(cost.disk_bytes > 0 for cost in costs)


def test_copies_are_of_what_came_shortly_before() -> None:
    first, second = shapes.batches(2 * shapes.BATCH, copies=0.1, seed=1)
    copies = [identifier for identifier in second if identifier in set(first)]
    assert 100 < len(copies) < 400
