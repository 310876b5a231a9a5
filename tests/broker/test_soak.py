"""A short soak: load, random faults, and at the end everything that has to hold."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.broker.world import Manner
from tests.soak.plan import Kind
from tests.soak.run import Soak

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("embedded_kind"),
]

SEED = 293
SECONDS = 14
"""Both guests leave, one of them is killed, and the survivor sleeps: each while it is up."""
CROWD = Manner(workers=2, scope="address")


def soak(
    folder: Path, manner: Manner, seconds: int = SECONDS, kinds: Sequence[Kind] = tuple(Kind)
) -> None:
    verdicts = Soak(folder, SEED, seconds, manner, print, kinds=kinds).run()
    assert [verdict for verdict in verdicts if verdict.broken is not None] == []
    assert len({verdict.promise for verdict in verdicts}) > len("I1-I13")


@pytest.mark.parametrize(
    "manner",
    [
        pytest.param(Manner(), id="scope partition", marks=pytest.mark.long),
        pytest.param(
            CROWD,
            id="two workers, scope address",
            marks=[pytest.mark.row(13), pytest.mark.long],
        ),
    ],
)
def test_a_short_soak_holds_every_promise(tmp_path: Path, manner: Manner) -> None:
    soak(tmp_path, manner)


@pytest.mark.long
@pytest.mark.row(13)
def test_a_crowd_that_comes_and_goes_decides_as_one(tmp_path: Path) -> None:
    soak(tmp_path, CROWD, 180, [Kind.LEAVE])
