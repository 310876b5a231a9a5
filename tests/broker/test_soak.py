"""A short soak: load, random faults, and at the end everything that has to hold."""

from pathlib import Path

import pytest

from tests.broker.world import Manner
from tests.soak.run import Soak

pytestmark = pytest.mark.broker

SEED = 7
SECONDS = 14


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("embedded_kind")
@pytest.mark.parametrize(
    "manner",
    [Manner(), Manner(workers=2, scope="address")],
    ids=["scope partition", "two workers, scope address"],
)
def test_a_short_soak_holds_every_promise(tmp_path: Path, manner: Manner) -> None:
    verdicts = Soak(tmp_path, SEED, SECONDS, manner, print).run()
    assert [verdict for verdict in verdicts if verdict.broken is not None] == []
    assert len({verdict.promise for verdict in verdicts}) > len("I1-I13")
