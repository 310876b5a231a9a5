"""What holds for every test of the simulations."""

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.runs import SEED, be_quiet


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Log nothing, but where one seed was asked for."""
    if not SEED:
        be_quiet()
    yield
    structlog.reset_defaults()
