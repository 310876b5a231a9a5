"""Names that a bind answers to."""

import pytest

from api.hosts import allowed_hosts
from tests.unit.helpers import some


@pytest.mark.parametrize("bind_host", ["127.0.0.1", "localhost", "::1", "127.0.0.5"])
def test_a_loopback_bind_answers_to_loopback_names_and_its_own(bind_host: str) -> None:
    names = some(allowed_hosts(bind_host, ""))
    assert names == {"localhost", "127.0.0.1", "::1", bind_host}


def test_a_loopback_bind_behind_a_tunnel_answers_to_its_advertised_name() -> None:
    assert "ringfence.example" in (allowed_hosts("127.0.0.1", "https://ringfence.example") or ())


@pytest.mark.parametrize("bind_host", ["0.0.0.0", "::", "10.1.2.3", "ringfence-0.ringfence"])  # noqa: S104 - what is asked
def test_another_bind_answers_to_any_name(bind_host: str) -> None:
    assert allowed_hosts(bind_host, "") is None
