"""Case: a row of a table, and the manners in which its trace is played."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import pytest

Settings = Mapping[str, object]


class Manner(NamedTuple):
    """How a trace is cut into transactions and lives; no verdict may depend on it."""

    records_max: int = 10_000
    dies: bool = False
    """Killed after each record."""
    keeps_disk: bool = True
    loses_disk_each: int = 1
    """At which of its deaths: at each, or at every other one."""


MANNERS: Final = {
    "in one transaction": Manner(),
    "in one each": Manner(records_max=1),
    "killed after each": Manner(dies=True),
    "killed after each, its disk lost": Manner(dies=True, keeps_disk=False),
}

_EXTREMES: Final = {
    "in one transaction": Manner(),
    "killed after each, its disk lost in turns": Manner(
        dies=True, keeps_disk=False, loses_disk_each=2
    ),
}
"""`test_manners` plays whatever there is in all of them."""

every_manner = pytest.mark.parametrize("manner", _EXTREMES.values(), ids=_EXTREMES)


class Case(NamedTuple):
    """One row of a table of cases."""

    number: int
    sentence: str
    trace: str
    fates: str
    settings: Settings = MappingProxyType({})


def every_case(*cases: Case) -> pytest.MarkDecorator:
    """Each case a test with its number in the name."""
    ids = [f"case_{case.number:02} {case.sentence}" for case in cases]
    return pytest.mark.parametrize("case", cases, ids=ids)
