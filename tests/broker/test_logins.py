"""The service by each login that clusters have: it is killed, and every message has one fate."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.logins import MUTUAL_TLS, OIDC, SCRAM, Logins, TokenIssuer, java_options
from tests.broker.service import ringfence
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("embedded_kind"),
    pytest.mark.xdist_group("logins"),  # one broker for all of them
]

MESSAGES = 1_000


class Site(NamedTuple):
    """A broker with logins."""

    broker: EmbeddedBroker
    logins: Logins
    issuer: TokenIssuer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("logins")
    machine = Machine(heap_mb=512, short_lived=True)
    with TokenIssuer() as issuer, pytest.MonkeyPatch.context() as environment:
        broker = EmbeddedBroker(folder / "broker", machine=machine)
        logins = Logins(broker, issuer, folder)
        environment.setenv("JAVA_TOOL_OPTIONS", java_options(issuer))
        with broker:
            logins.add_user()
            yield Site(broker, logins, issuer)


@pytest.mark.parametrize("login", [SCRAM, MUTUAL_TLS, OIDC])
def test_every_message_has_one_fate_by_whatever_login_the_service_connects(
    site: Site, new_world: NewWorld, login: str
) -> None:
    client, issued = site.broker.client_properties, site.issuer.issued
    world = new_world(client, count=MESSAGES, service_client=site.logins[login])
    world.send(MESSAGES // 2)
    service = world.service()
    config = world.folder / "check.toml"
    config.write_text(world.config_text(0, "0", "state"), encoding="utf-8")
    done = ringfence("check", "--config", str(config))
    assert done.returncode == 0, done.stdout + done.stderr
    service.start()
    world.wait_decided(MESSAGES // 4)
    service.kill()
    service.start()
    world.conclude(service)
    assert (site.issuer.issued > issued) == (login == OIDC)
