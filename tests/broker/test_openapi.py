"""The whole OpenAPI on a live service: whatever is asked, the answer is one that is documented."""

import json
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case, CheckContext, Response, SerializationContext
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.media import NDJSON
from api.problems import MEDIA_TYPE
from service.control import Inbox
from tests.api.fake_service import RUNNING, Clock, make_view
from tests.broker.world import World
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("openapi")]

EXAMPLES = 4
LIMIT_S = 90.0
ASKED_AGAIN = 60
"""Some answers wait: for what is set to be applied, or for a partition that is being given away."""


def is_problem(_context: CheckContext, response: Response, _case: Case[Any]) -> None:
    """RFC 9457, for every refusal."""
    if response.status_code >= 400:
        kinds = response.headers.get("content-type", [])
        assert kinds == [MEDIA_TYPE], f"{response.status_code} came as {kinds}"


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    is_problem,
]


@schemathesis.serializer(NDJSON)
def as_lines(_context: SerializationContext, value: object) -> bytes:
    """A text is lines already, good or not; anything else is one line."""
    return (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace")


schema = schemathesis.openapi.from_dict(create_app(make_view(RUNNING, Clock(), Inbox(1))).openapi())


@pytest.fixture(scope="module")
def url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service that has decided something, with dead letters to tell of."""
    folder = tmp_path_factory.mktemp("openapi")
    with World(broker.client_properties, folder, f"openapi-{uuid4().hex[:12]}", count=500) as world:
        world.create()
        world.send()
        service = world.started()
        world.wait_decided()
        service.wait_ready()
        yield service.url
        service.stop()


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_the_answer_is_documented(case: Case[Any], url: str) -> None:
    response = case.call(base_url=url, timeout=LIMIT_S)
    for _ in range(ASKED_AGAIN):
        if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            break
        assert "retry-after" in response.headers
        case.validate_response(response, checks=[c for c in CHECKS if c is not not_a_server_error])
        time.sleep(1)  # noqa: TID251 - sooner is not what Retry-After says
        response = case.call(base_url=url, timeout=LIMIT_S)
    case.validate_response(response, checks=CHECKS)
