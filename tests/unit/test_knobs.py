"""Knobs do not rot: what the simulation turns is still there."""

from dataclasses import fields

from tests.fakes.log import FakeCluster
from tests.simulation.knobs import Knobs, turned


def test_every_knob_can_be_turned() -> None:
    every = Knobs(**{each.name: 1 for each in fields(Knobs)})
    with turned(every, FakeCluster()):
        pass
