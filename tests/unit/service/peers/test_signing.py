"""Signed requests between instances: what counts as current when clocks are set."""

from pathlib import Path

import pytest

from ringfence_service.peers.signing import WINDOW_S, PeerKey, RequestOrigin
from tests.api.guarded import PEER

ORIGIN = RequestOrigin("1", "", "request-1")
NOW_S = 1_790_000_000.0
DAY_S = 86_400.0


class Machine:
    """The two clocks of a machine: its wall clock may be set."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        self.up_s, self.ahead_s = 1000.0, ahead_s

    def key(self, folder: Path) -> PeerKey:
        (folder / "peer").write_text(PEER)
        return PeerKey(str(folder / "peer"), self.wall_s, lambda: self.up_s)

    def wall_s(self) -> float:
        return NOW_S + self.up_s - 1000.0 + self.ahead_s


def is_admitted(key: PeerKey, header: str) -> bool:
    return key.admitted("/ask", ORIGIN, header) is not None


def signed(key: PeerKey) -> str:
    return key.signed("/ask", ORIGIN, b"").header


@pytest.mark.parametrize("ahead_s", [DAY_S, -DAY_S, 3600.0, 0.0])
def test_instances_whose_clock_was_put_right_after_their_start_admit_each_other(
    tmp_path: Path, ahead_s: float
) -> None:
    machine, other = Machine(ahead_s), Machine()
    key, theirs = machine.key(tmp_path), other.key(tmp_path)
    for each in (machine, other):
        each.up_s += 5
    machine.ahead_s = 0
    assert is_admitted(key, signed(theirs))
    assert is_admitted(theirs, signed(key))


@pytest.mark.parametrize("ago_s", [1.0, 30.0])
def test_what_was_signed_before_the_process_began_is_refused_however_the_clock_is_set(
    tmp_path: Path, ago_s: float
) -> None:
    machine = Machine()
    before = machine.key(tmp_path)
    header = signed(before)
    assert is_admitted(before, header)
    machine.up_s += ago_s
    after = machine.key(tmp_path)
    assert not is_admitted(after, header)
    machine.up_s += 1
    assert not is_admitted(after, header)
    assert is_admitted(after, signed(before))


def test_a_request_is_admitted_once_and_for_a_minute(tmp_path: Path) -> None:
    machine = Machine()
    key = machine.key(tmp_path)
    first, second, third = signed(key), signed(key), signed(key)
    assert [is_admitted(key, first), is_admitted(key, first)] == [True, False]
    machine.up_s += WINDOW_S
    assert is_admitted(key, second)
    machine.up_s += 1
    assert not is_admitted(key, third)
