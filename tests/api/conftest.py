"""A running service and a client of its API."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from ringfence_api.ports import ServiceView
from ringfence_service.queries.ids import IdLocation
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.status import ServiceStatus
from tests.api.fake_service import RUNNING, Clock, make_view, remembering, serving
from tests.api.guarded import client_of, guarded, settings
from tests.fakes.logs import logging_to

HELD = {
    ("orders", b"id-1"): IdLocation("orders", 3, 42, 1_700_000_000_000, 19_999),
    ("orders", b""): IdLocation("orders", 3, 43, 1_700_000_000_001, 20_000),
    ("orders", b"\xff\x00"): IdLocation("orders", 3, 44, 1_700_000_000_002, 1),
    ("a/b c+d%é", b"x/y?z#%2F"): IdLocation("orders", 3, 45, 1_700_000_000_003, 2),
}


@pytest.fixture(autouse=True)
def logged() -> Iterator[io.StringIO]:
    """What the service logs, as it logs in production."""
    stream = io.StringIO()
    with logging_to(stream):
        yield stream


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def inbox() -> Iterator[QueryInbox]:
    inbox = QueryInbox(depth=8)
    with serving(inbox, remembering(HELD)):
        yield inbox


@pytest.fixture
def view(clock: Clock, inbox: QueryInbox) -> ServiceView:
    return make_view(RUNNING, clock, inbox)


@pytest.fixture
def asking(view: ServiceView, tmp_path: Path) -> ServiceView:
    """The service, asking who asks."""
    return guarded(view, settings(tmp_path))


@pytest.fixture
def client(view: ServiceView) -> TestClient:
    return client_of(view)


@pytest.fixture
def client_at(clock: Clock, inbox: QueryInbox) -> Callable[[ServiceStatus], TestClient]:
    """A client of a service that has published the given status."""
    return lambda status: client_of(make_view(status, clock, inbox))
