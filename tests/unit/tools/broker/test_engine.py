"""A machine without an engine is named by what it lacks."""

import pytest

from tools.broker import engine
from tools.broker.errors import BrokerError


def test_a_machine_without_podman_is_refused_with_the_programs_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BrokerError, match=r"needs podman, runc,.* not installed here\.$"):
        engine.main(["true"])
