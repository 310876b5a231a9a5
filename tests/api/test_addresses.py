"""Addresses and ids over REST: any character, any bytes, in the path or by query."""

import base64
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from api.app import create_app
from ringfence.headers import id_text
from service.control import Inbox
from service.queries.ids import IdAnswer, IdQuery, Sighting
from service.queries.table import Query
from service.status import Status
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING, Clock, make_view, serving


def test_an_address_shows_its_settings_and_the_pattern_of_each(client: TestClient) -> None:
    document = client.get("/v1/addresses/orders").json()
    assert document["settings"] == {
        "id_cache_size": {"value": 20_000, "pattern": "#"},
        "strategy": {"value": "ring", "pattern": "default"},
    }
    assert (document["accepted"], document["duplicates"]) == (7, 2)
    assert document["counted_since"] == "1970-01-01T00:00:01Z"
    assert document["ids_held"] == 3
    assert document["complete"] is True
    (ring,) = document["partitions"]
    assert ring["oldest_time"] == "2023-11-14T22:13:20Z"
    assert ring["horizon_ms"] is None


def test_an_address_never_seen_holds_nothing_and_has_settings(client: TestClient) -> None:
    document = client.get("/v1/addresses/nobody").json()
    assert document["ids_held"] == 0
    assert document["settings"]["id_cache_size"]["value"] == 20_000


def test_a_known_id_names_the_message_it_came_with(client: TestClient) -> None:
    document = client.get("/v1/addresses/orders/ids/id-1").json()
    assert document == {
        "address": "orders",
        "id": "id-1",
        "known": True,
        "sightings": [
            {
                "topic": "orders",
                "partition": 3,
                "offset": 42,
                "time": "2023-11-14T22:13:20Z",
                "slots_to_eviction": 19_999,
            }
        ],
        "settings": client.get("/v1/addresses/orders").json()["settings"],
        "complete": True,
    }


def test_an_unknown_id_is_an_answer_and_no_error(client: TestClient) -> None:
    response = client.get("/v1/addresses/orders/ids/never")
    assert response.status_code == 200
    assert response.json()["known"] is False


@pytest.mark.parametrize(
    "notation",
    ["hex:ff00", "hex:FF00", "base64:/wA=", "base64:_wA=", "base64:_wA"],
)
def test_an_id_of_any_bytes_is_written_as_hex_or_base64(client: TestClient, notation: str) -> None:
    in_path = client.get(f"/v1/addresses/orders/ids/{quote(notation, safe='')}").json()
    by_query = client.get("/v1/addresses/orders/ids", params={"name": notation}).json()
    assert in_path == by_query
    assert in_path["known"] is True
    assert in_path["id"] == "hex:ff00"


@pytest.mark.parametrize(
    "path",
    [
        "/v1/addresses/orders/ids?name=",
        "/v1/addresses/orders/ids/hex:",
        "/v1/ids?address=orders&name=",
    ],
)
def test_the_empty_id_is_an_id(client: TestClient, path: str) -> None:
    assert client.get(path).json()["known"] is True


ODD_ADDRESS = "a/b c+d%é"
ODD_ID = "x/y?z#%2F"


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/addresses/{quote(ODD_ADDRESS, safe='')}/ids/{quote(ODD_ID, safe='')}",
        f"/v1/addresses/{quote(ODD_ADDRESS, safe='')}/ids?name={quote(ODD_ID, safe='')}",
        f"/v1/ids?address={quote(ODD_ADDRESS, safe='')}&name={quote(ODD_ID, safe='')}",
    ],
)
def test_an_address_and_an_id_hold_any_character(client: TestClient, path: str) -> None:
    document = client.get(path).json()
    assert document["known"] is True
    assert (document["address"], document["id"]) == (ODD_ADDRESS, ODD_ID)


def test_an_address_by_query_is_the_address_in_the_path(client: TestClient) -> None:
    in_path = client.get(f"/v1/addresses/{quote(ODD_ADDRESS, safe='')}").json()
    assert client.get("/v1/addresses", params={"name": ODD_ADDRESS}).json() == in_path
    assert in_path["address"] == ODD_ADDRESS


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    address=st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
        # Clients take these for steps in the path; they are asked for by query.
        lambda text: text not in {".", ".."}
    ),
    identifier=st.binary(),
)
def test_what_is_asked_is_what_the_loop_hears(address: str, identifier: bytes) -> None:
    heard: list[Query] = []

    def answer(query: Query) -> IdAnswer:
        heard.append(query)
        return IdAnswer(known=False, sightings=())

    inbox = Inbox(depth=4)
    client = TestClient(create_app(make_view(RUNNING, Clock(), inbox, any_host=True)))
    encoded_id = quote(id_text(identifier), safe="") or "hex:"
    if encoded_id in {".", ".."}:
        encoded_id = "hex:" + identifier.hex()
    text_id = "base64:" + base64.b64encode(identifier).decode()
    with serving(inbox, answer):
        client.get(f"/v1/addresses/{quote(address, safe='')}/ids/{encoded_id}").raise_for_status()
        client.get("/v1/ids", params={"address": address, "name": text_id}).raise_for_status()
    assert heard == [IdQuery(address, identifier)] * 2


@pytest.mark.parametrize(
    "path",
    [
        "/v1/addresses/orders/ids/hex:abc",
        "/v1/addresses/orders/ids/hex:xy",
        "/v1/addresses/orders/ids/base64:%21",
        "/v1/addresses/orders/ids/base64:A",
        "/v1/addresses?name=",
        "/v1/addresses?sort=size",
        "/v1/addresses?page_size=0",
        "/v1/addresses?page_size=1001",
        "/v1/ids?name=id-1",
        "/v1/ids?address=",
    ],
)
def test_an_id_or_address_that_is_not_one_is_refused_with_its_place(
    client: TestClient, path: str
) -> None:
    response = client.get(path)
    assert response.status_code == 422
    problem = response.json()
    assert problem["type"] == "urn:ringfence:problem:invalid-request"
    assert problem["errors"][0]["pointer"].split("/")[1] in {"path", "query"}


def test_text_that_is_not_utf8_is_refused_rather_than_guessed(client: TestClient) -> None:
    for path in ("/v1/addresses/orders/ids/%FF%00", "/v1/addresses/orders/ids?name=%FF"):
        response = client.get(path)
        assert response.status_code == 400
        assert "hex:" in response.json()["detail"]


@pytest.mark.parametrize(
    "status",
    [
        STARTING,
        RUNNING._replace(phase="stopping"),
        RUNNING._replace(partitions=(*RUNNING.partitions, RESTORING_PARTITION)),
    ],
)
def test_no_answer_is_given_from_a_state_that_is_not_whole(
    client_at: Callable[[Status], TestClient], status: Status
) -> None:
    for path in ("/v1/addresses/orders", "/v1/addresses/orders/ids/id-1"):
        response = client_at(status).get(path)
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) >= 1
        assert response.json()["type"] == "urn:ringfence:problem:unavailable"


def test_a_sighting_keeps_its_milliseconds(clock: Clock) -> None:
    seen = Sighting("orders", 0, 1, 1_700_000_000_123, 1)
    inbox = Inbox(depth=4)
    client = TestClient(create_app(make_view(RUNNING, clock, inbox, any_host=True)))
    with serving(inbox, lambda _: IdAnswer(known=True, sightings=(seen,))):
        document = client.get("/v1/addresses/orders/ids/a").json()
    assert document["sightings"][0]["time"] == "2023-11-14T22:13:20.123000Z"
