"""Between instances: who may ask, what is answered, and that none of it is in the document."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from starlette.testclient import TestClient

from api.restored import require_restored
from api.view import ServiceView
from service.control import NotPossible
from service.fleet.hearing import Hearing
from service.fleet.messages import (
    FORWARDED,
    PATH,
    Question,
    Refusal,
    Roll,
    RollCall,
    question_text,
    reply_of,
)
from service.queries.ids import IdAnswer, IdQuery, IdsImport, Known
from service.queries.table import Query
from service.status import Status
from tests.api.fake_service import RUNNING, STARTING
from tests.api.guarded import client_of

TOKEN = "a secret that instances share"  # noqa: S105
FROM_PEER = {FORWARDED: "1"}
BEARING = {**FROM_PEER, "Authorization": f"Bearer {TOKEN}"}
QUESTION = question_text(Question("0", IdQuery("orders", b"id-1"), 2000))


def admits(authorization: str | None) -> bool:
    return authorization == f"Bearer {TOKEN}"


def hearing_client(
    view: ServiceView, status: Status = RUNNING, *, with_token: bool = True
) -> TestClient:
    hearing = Hearing(
        view.inbox,
        lambda: Roll("0.1.0", 7, status),
        require_restored,
        admits if with_token else None,
    )
    return client_of(replace(view, hearing=hearing))


def asked(client: TestClient, query: Query | RollCall, to: str = "0") -> object:
    response = client.post(PATH, content=question_text(Question(to, query, 2000)), headers=BEARING)
    assert response.status_code == 200, response.text
    reply = reply_of(response.content)
    assert reply.instance == "0"
    assert [tuple(place) for place in reply.owned] == [("orders", 3)] or to == "starting"
    return reply.told


def test_what_the_own_processes_know_is_answered(view: ServiceView) -> None:
    told = asked(hearing_client(view), IdQuery("orders", b"id-1"))
    assert isinstance(told, IdAnswer)
    assert told.known
    assert told.sightings[0].offset == 42


def test_how_it_does_is_told_to_who_asks_for_that(view: ServiceView) -> None:
    assert asked(hearing_client(view), RollCall()) == Roll("0.1.0", 7, RUNNING)


def test_a_refusal_travels_as_the_answer(view: ServiceView) -> None:
    told = asked(hearing_client(view), IdsImport("orders", "elsewhere", 0, (Known(b"x"),)))
    assert isinstance(told, Refusal)
    assert told.kind == NotPossible.__name__
    assert "elsewhere" in told.sentence


def test_an_instance_that_has_not_joined_says_so(view: ServiceView) -> None:
    client = hearing_client(view, STARTING)
    response = client.post(PATH, content=QUESTION, headers=BEARING)
    told = reply_of(response.content).told
    assert isinstance(told, Refusal)
    assert (told.kind, told.retry_after_s) == ("NotRestored", 2)


def test_a_question_to_another_instance_is_not_answered(view: ServiceView) -> None:
    told = asked(hearing_client(view), IdQuery("orders", b"id-1"), to="7")
    assert told == Refusal("Unavailable", "This is instance 0.")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        FROM_PEER,
        {**FROM_PEER, "Authorization": "Bearer wrong"},
        {**FROM_PEER, "Authorization": TOKEN},
        {"Authorization": f"Bearer {TOKEN}"},
    ],
)
def test_who_bears_no_peer_token_is_refused(view: ServiceView, headers: Mapping[str, str]) -> None:
    response = hearing_client(view).post(PATH, content=QUESTION, headers=dict(headers))
    assert response.status_code == 403
    assert response.json()["type"].endswith("peers-only")


def test_without_a_token_a_service_that_asks_nobody_who_he_is_answers(view: ServiceView) -> None:
    client = hearing_client(view, with_token=False)
    assert client.post(PATH, content=QUESTION, headers=FROM_PEER).status_code == 200
    assert client.post(PATH, content=QUESTION).status_code == 403, "a page in a browser"


@pytest.mark.parametrize("body", [b"", b"{}", b"[1,2]", b'["0",{"Unknown":[]},1]'])
def test_what_is_no_question_is_a_malformed_request(view: ServiceView, body: bytes) -> None:
    response = hearing_client(view).post(PATH, content=body, headers=BEARING)
    assert response.status_code == 400
    assert response.json()["type"].endswith("malformed-request")


def test_the_path_is_not_there_where_nobody_hears_and_never_in_the_document(
    view: ServiceView,
) -> None:
    assert client_of(view).post(PATH, content=QUESTION, headers=BEARING).status_code == 404
    paths = hearing_client(view).get("/openapi.json").json()["paths"]
    assert not [path for path in paths if "internal" in path]
