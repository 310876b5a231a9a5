"""Names that the API answers to."""

import pytest

from ringfence_api.hosts import allowed_hosts, is_allowed
from ringfence_service.config.model import ApiSettings
from tests.support.helpers import some

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is asked
LOOPBACK = {"localhost", "127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.5"])
@pytest.mark.parametrize("auth", ["", "none", "tokens"])
def test_a_loopback_bind_answers_to_loopback_names_and_its_own(host: str, auth: str) -> None:
    api = ApiSettings(host=host, auth=auth)  # type: ignore[arg-type]
    assert some(allowed_hosts(api)) == LOOPBACK | {host}


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "10.1.2.3", "ringfence-0.ringfence"])
def test_another_bind_answers_to_any_name_only_where_it_asks_who(host: str) -> None:
    assert allowed_hosts(ApiSettings(host=host, auth="tokens")) is None
    assert some(allowed_hosts(ApiSettings(host=host, auth="none"))) == LOOPBACK | {host}


def test_names_that_are_configured_and_the_advertised_one_are_known_in_any_case() -> None:
    api = ApiSettings(
        host=EVERYWHERE,
        auth="oidc",
        advertised_url="https://Pod-0.Ringfence:8080",
        allowed_hosts=("Ringfence.Example",),
    )
    assert some(allowed_hosts(api)) >= {"pod-0.ringfence", "ringfence.example"}


@pytest.mark.parametrize("name", ["ringfence", "ringfence.", "10.1.2.3", "fe80::1"])
def test_an_address_and_a_known_name_are_taken(name: str) -> None:
    assert is_allowed(name, frozenset({"ringfence"}))


@pytest.mark.parametrize("name", [None, "", "evil.example", "0x7f000001", "10.1.2.3.example"])
def test_any_other_name_is_not(name: str | None) -> None:
    assert not is_allowed(name, frozenset({"ringfence"}))
