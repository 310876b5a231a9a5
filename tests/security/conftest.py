"""The service that is attacked: `serve` as a process of its own, which asks who asks."""

from collections.abc import Iterator

import pytest

from tests.api.guarded import AUDIENCE, settings
from tests.broker.desk import Desk
from tests.broker.service import Service
from tests.support.waiting import eventually
from tools.broker.cluster import open_broker

NOBODY = "https://127.0.0.1:1"
"""An issuer that does not answer."""


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """It has to be well, and to end in an orderly way, after all that was tried."""
    folder = tmp_path_factory.mktemp("security")
    settings(folder)  # the files with tokens
    with (
        open_broker(folder / "broker", heap_mb=512, short_lived=True) as broker,
        Desk(broker.client_properties, folder, "attacked") as desk,
    ):
        desk.create()
        service = desk.serving(
            "attacked",
            api=f"""
auth = "tokens+oidc"
tokens_file = "{folder / "tokens"}"
peer_token_file = "{folder / "peer"}"
oidc_issuer = "{NOBODY}"
oidc_audience = "{AUDIENCE}"
""",
            rest=f'[[routes]]\ninputs = ["{desk.input}"]\n',
        )
        service.start()
        eventually(lambda: service.is_ready, service)
        yield service
        assert service.is_ready
        service.stop()


@pytest.fixture(scope="session")
def port(served: Service) -> int:
    """Of its API."""
    return served.port
