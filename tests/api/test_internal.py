"""Between instances: who may ask, what is answered, and that none of it is in the document."""

import asyncio
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import structlog
from fastapi import FastAPI
from httpx2 import Response
from starlette.testclient import TestClient

from ringfence_api.ports import ServiceView
from ringfence_api.restored import require_restored
from ringfence_api.server import serve_in_thread
from ringfence_service.dedup.record import KnownId
from ringfence_service.metadata.instances import Registration
from ringfence_service.peers.client import PeerClient
from ringfence_service.peers.protocol import (
    ACTOR,
    FORWARDED,
    PATH,
    SIGNATURE,
    PeerQuery,
    QueryRefusal,
    StatusReply,
    StatusRequest,
    decode_reply,
    encode_query,
)
from ringfence_service.peers.server import PeerServer
from ringfence_service.peers.signing import WINDOW_S, PeerKey, RequestOrigin
from ringfence_service.queries.errors import NotPossible
from ringfence_service.queries.ids import ChangeAnswer, ClearAddress, IdAnswer, IdQuery, ImportIds
from ringfence_service.queries.registry import Query
from ringfence_service.queries.status import ServiceStatus
from tests.api.fake_service import RUNNING, STARTING
from tests.api.guarded import HERE, PEER, client_of, guarded, settings
from tests.support.waiting import LIMIT_S

ASKER = RequestOrigin("1", "ada%20l", "request-1")
QUESTION = encode_query(PeerQuery("0", IdQuery("orders", b"id-1"), 2000))
NOW_S = 1_790_000_000.0


def headers_of(asker: RequestOrigin, authorization: str) -> dict[str, str]:
    told = {FORWARDED: asker.instance, ACTOR: asker.actor, "X-Request-Id": asker.request_id}
    return {**told, "Authorization": authorization}


class Time:
    """The clock that both instances have."""

    now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time_s() -> Time:
    return Time()


@pytest.fixture
def key(tmp_path: Path, time_s: Time) -> PeerKey:
    """What another instance signs by; this one has the same secret."""
    (tmp_path / "peer").write_text(PEER)
    return PeerKey(str(tmp_path / "peer"), time_s, time_s)


Clients = Callable[..., TestClient]


@pytest.fixture
def hears(view: ServiceView, tmp_path: Path, time_s: Time) -> Clients:
    """Makes a client of a service that hears other instances, and asks everybody who he is."""

    def made(status: ServiceStatus = RUNNING, *, is_open: bool = False) -> TestClient:
        api = settings(tmp_path)
        own = None if is_open else PeerKey(api.peer_token_file, time_s, time_s)
        peer_server = PeerServer(
            view.inbox, lambda: StatusReply("0.1.0", 7, status), require_restored, own
        )
        hears = replace(view, peer_server=peer_server)
        return client_of(hears if is_open else guarded(hears, api))

    return made


def sent(client: TestClient, key: PeerKey, body: bytes = QUESTION) -> Response:
    return client.post(
        PATH, content=body, headers=headers_of(ASKER, key.signed(PATH, ASKER, body).header)
    )


def asked(client: TestClient, key: PeerKey, query: Query | StatusRequest, to: str = "0") -> object:
    response = sent(client, key, encode_query(PeerQuery(to, query, 2000)))
    assert response.status_code == 200, response.text
    reply = decode_reply(response.content)
    assert reply.instance == "0"
    assert [tuple(place) for place in reply.owned] == [("orders", 3)] or to == "starting"
    return reply.outcome


def test_what_the_own_processes_know_is_answered(hears: Clients, key: PeerKey) -> None:
    told = asked(hears(), key, IdQuery("orders", b"id-1"))
    assert isinstance(told, IdAnswer)
    assert told.known
    assert told.sightings[0].offset == 42


def test_a_status_request_is_answered_with_the_status(hears: Clients, key: PeerKey) -> None:
    assert asked(hears(), key, StatusRequest()) == StatusReply("0.1.0", 7, RUNNING)


def test_a_refusal_travels_as_the_answer(hears: Clients, key: PeerKey) -> None:
    told = asked(hears(), key, ImportIds("orders", "elsewhere", 0, (KnownId(b"x"),)))
    assert isinstance(told, QueryRefusal)
    assert told.kind == NotPossible.__name__
    assert "elsewhere" in told.sentence


def test_an_instance_that_has_not_joined_says_so(hears: Clients, key: PeerKey) -> None:
    told = decode_reply(sent(hears(STARTING), key).content).outcome
    assert isinstance(told, QueryRefusal)
    assert (told.kind, told.retry_after_s) == ("NotRestored", 2)


def test_a_question_to_another_instance_is_not_answered(hears: Clients, key: PeerKey) -> None:
    told = asked(hears(), key, IdQuery("orders", b"id-1"), to="7")
    assert told == QueryRefusal("Unavailable", "This is instance 0.")


def test_a_reply_bears_the_signature_of_its_question(hears: Clients, key: PeerKey) -> None:
    signed = key.signed(PATH, ASKER, QUESTION)
    response = hears().post(PATH, content=QUESTION, headers=headers_of(ASKER, signed.header))
    told = response.headers[SIGNATURE], signed.nonce, response.content
    assert key.is_of_reply(*told)
    assert not key.is_of_reply(told[0], "0" * 32, told[2])
    assert not key.is_of_reply(*told[:2], told[2] + b" ")


def test_the_secret_itself_lets_nobody_in(hears: Clients, key: PeerKey) -> None:
    client, bearer = hears(), {FORWARDED: "1", "Authorization": f"Bearer {PEER}"}
    assert client.post(PATH, content=QUESTION, headers=bearer).status_code == 403
    assert client.post("/v1/addresses/orders:clear", headers=bearer).status_code == 401
    signature = headers_of(ASKER, key.signed("/v1/info", ASKER, b"").header)
    assert client.get("/v1/info", headers=signature).status_code == 401


def test_what_is_not_covered_by_the_signature_is_refused(hears: Clients, key: PeerKey) -> None:
    client, signature = hears(), key.signed(PATH, ASKER, QUESTION).header
    other = encode_query(PeerQuery("0", ClearAddress("orders"), 2000))
    wrong = [
        ({}, QUESTION),
        (headers_of(ASKER._replace(actor="bob"), signature), QUESTION),
        (headers_of(ASKER._replace(instance="2"), signature), QUESTION),
        (headers_of(ASKER._replace(request_id="another"), signature), QUESTION),
        (headers_of(ASKER, key.signed("/v1/other", ASKER, QUESTION).header), QUESTION),
        (headers_of(ASKER, signature[:-1]), QUESTION),
        (headers_of(ASKER, signature.replace(".", ".x", 1)), QUESTION),
        (headers_of(ASKER, signature), other),
    ]
    for headers, body in wrong:
        response = client.post(PATH, content=body, headers=headers)
        assert response.status_code == 403, headers
        assert response.json()["type"].endswith("peers-only")


def test_a_signature_holds_once_for_a_minute_and_for_one_process(
    hears: Clients, key: PeerKey, time_s: Time
) -> None:
    client, headers = hears(), headers_of(ASKER, key.signed(PATH, ASKER, QUESTION).header)
    assert client.post(PATH, content=QUESTION, headers=headers).status_code == 200
    assert client.post(PATH, content=QUESTION, headers=headers).status_code == 403, "again"
    early = headers_of(ASKER, key.signed(PATH, ASKER, QUESTION).header)
    time_s.now_s += WINDOW_S + 1
    assert client.post(PATH, content=QUESTION, headers=early).status_code == 403, "too late"
    ahead = headers_of(ASKER, key.signed(PATH, ASKER, QUESTION).header)
    time_s.now_s += 1
    assert hears().post(PATH, content=QUESTION, headers=ahead).status_code == 403, "a new process"
    assert sent(client, key).status_code == 200


def test_a_change_is_logged_with_its_requester(
    hears: Clients, key: PeerKey, logged: io.StringIO
) -> None:
    asked(hears(), key, IdQuery("orders", b"id-1"))
    assert '"via"' not in logged.getvalue()
    assert isinstance(asked(hears(), key, ClearAddress("orders")), ChangeAnswer)
    (line,) = [line for line in logged.getvalue().splitlines() if '"via"' in line]
    for told in ('"audit"', '"instance 1"', '"ClearAddress"', '"orders"', '"ada l"', '"request-1"'):
        assert told in line


def test_without_a_secret_only_this_machine_has_changes_made(hears: Clients) -> None:
    client = hears(is_open=True)
    near = TestClient(client.app, base_url=HERE, client=("127.0.0.1", 1))
    change = encode_query(PeerQuery("0", ClearAddress("orders"), 2000))
    for who in (client, near):
        assert who.post(PATH, content=QUESTION, headers={FORWARDED: "1"}).status_code == 200
        assert who.post(PATH, content=QUESTION).status_code == 403, "a page in a browser"
    refused, made = (
        decode_reply(who.post(PATH, content=change, headers={FORWARDED: "1"}).content).outcome
        for who in (client, near)
    )
    assert isinstance(refused, QueryRefusal)
    assert "api.peer_token_file" in refused.sentence
    assert isinstance(made, ChangeAnswer)


@pytest.mark.parametrize(
    ("secret", "is_open", "code"),
    [(PEER, False, None), ("q" * 40, False, "refused"), (PEER, True, "not-signed")],
)
def test_instances_answer_each_other_where_they_share_a_secret(
    hears: Clients, tmp_path: Path, time_s: Time, secret: str, code: str | None, *, is_open: bool
) -> None:
    app = hears(is_open=is_open).app
    assert isinstance(app, FastAPI)
    server = serve_in_thread(app, "127.0.0.1", 0)
    (tmp_path / "theirs").write_text(secret)
    known = [Registration("0", server.url, 0, "0.1.0")]
    peers = PeerClient("1", lambda: known, PeerKey(str(tmp_path / "theirs"), time_s))
    try:
        with structlog.contextvars.bound_contextvars(actor="Zoë", request_id="r"):
            (heard,) = asyncio.run(peers.ask(IdQuery("orders", b"id-1"), LIMIT_S))
        closing = asyncio.run_coroutine_threadsafe(peers._pool().aclose(), peers._running_loop())
        closing.result(LIMIT_S)
    finally:
        server.stop()
    assert (heard.trouble and heard.trouble.code, heard.reply is None) == (code, code is not None)


@pytest.mark.parametrize("body", [b"", b"{}", b"[1,2]", b'["0",{"Unknown":[]},1]'])
def test_what_is_no_question_is_a_malformed_request(
    hears: Clients, key: PeerKey, body: bytes
) -> None:
    response = sent(hears(), key, body)
    assert response.status_code == 400
    assert response.json()["type"].endswith("malformed-request")


def test_the_path_is_not_there_where_nobody_hears_and_never_in_the_document(
    view: ServiceView, hears: Clients, key: PeerKey
) -> None:
    assert sent(client_of(view), key).status_code == 404
    paths = hears(is_open=True).get("/openapi.json").json()["paths"]
    assert not [path for path in paths if "internal" in path]
