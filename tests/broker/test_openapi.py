"""The whole OpenAPI on a live service: whatever is asked, the answer is one that is documented."""

import json
import os
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
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ringfence_api.app import create_app
from ringfence_api.content import NDJSON
from ringfence_api.problems import MEDIA_TYPE
from ringfence_service.config.tokens import entry_of
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_service import RUNNING, Clock, make_view
from tests.broker.world import Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("openapi")]

EXAMPLES = int(os.environ.get("RINGFENCE_API_EXAMPLES", "2"))
"""Of each operation; every run draws others, and `make test-long` draws many."""
WALKS = 3 * EXAMPLES
LIMIT_S = 90.0
TOKEN = "token-of-ada".ljust(40, "x")
WHO = {"Authorization": f"Bearer {TOKEN}"}
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


REFUSED = ("412", "422", "428")
"""A schema does not say which tokens of pages were given, nor what settings contradict others."""
RULES = {"expected-statuses": ["2xx", "3xx", "401", "403", "404", "409", "429", "5xx", *REFUSED]}
schema = schemathesis.openapi.from_dict(
    create_app(make_view(RUNNING, Clock(), QueryInbox(1))).openapi(),
    config=SchemathesisConfig.from_dict({"checks": {"positive_data_acceptance": RULES}}),
)


@pytest.fixture(scope="module")
def url(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a service that asks who asks, and has decided something, with dead letters to tell of."""
    folder = tmp_path_factory.mktemp("openapi")
    (folder / "tokens").write_text(entry_of("ada", "admin,payload:read", TOKEN).line)
    manner = Manner(api=f'auth = "tokens"\ntokens_file = "{folder / "tokens"}"')
    group = f"openapi-{uuid4().hex[:12]}"
    with World(broker.client_properties, folder, group, count=500, manner=manner) as world:
        world.create()
        world.send()
        service = world.started()
        world.wait_decided()
        eventually(lambda: service.is_ready, service)
        yield service.url
        service.stop()


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_the_answer_is_documented(case: Case[Any], url: str) -> None:
    how: dict[str, Any] = {"base_url": url, "timeout": LIMIT_S, "headers": WHO}
    response = case.call(**how)
    for _ in range(ASKED_AGAIN):
        if response.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            break
        assert "retry-after" in response.headers
        case.validate_response(response, checks=[c for c in CHECKS if c is not not_a_server_error])
        time.sleep(1)  # noqa: TID251 - sooner is not what Retry-After says
        response = case.call(**how)
    case.validate_response(response, checks=CHECKS)


def test_what_an_answer_leads_to_is_answered_as_documented_too(url: str) -> None:
    """By links of the document, and those that the checker finds by names, and with its checks.

    But one, which shows wrong tokens until they are answered 429: test_roles has the role of each.
    """

    class Walk(schema.as_state_machine()):  # type: ignore[misc]  # it is made from the document
        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:  # noqa: ARG002 - its name
            return {"base_url": url, "timeout": LIMIT_S, "headers": WHO}

        def validate_response(
            self,
            response: Response,
            case: Case[Any],
            additional_checks: Any = None,  # noqa: ARG002 - its name
            **told: Any,
        ) -> None:
            if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
                assert "retry-after" in response.headers
                return
            case.validate_response(
                response,
                additional_checks=[is_problem],
                excluded_checks=[ignored_auth],
                transport_kwargs=told,
            )

    Walk.run(
        settings=settings(
            max_examples=WALKS,
            stateful_step_count=6,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
    )
