"""The client: what is tried again, what is said where it fails, and with which exit code."""

import threading
from collections.abc import Callable, Iterator

import pytest

from ringfence_service.cli.arguments import path_of
from ringfence_service.cli.http import AdminApi
from ringfence_service.cli.target import ApiTarget
from ringfence_service.errors import AdminExit, ExitError
from tests.support.waiting import LIMIT_S
from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.scripted import Reply, Scripted, scripted


def problem(status: int, detail: str = "So it is.", kind: str = "any", **more: object) -> Reply:
    told = {"type": f"urn:ringfence:problem:{kind}", "title": "T", "status": status}
    return Reply(status, {**told, "detail": detail, **more}, {"Retry-After": "0"})


Calls = Callable[..., tuple[AdminApi, Scripted, list[str]]]


@pytest.fixture
def calls() -> Iterator[Calls]:
    """A client of a server that answers so, and what the client says meanwhile."""
    opened = []

    def make(*replies: Reply, patience_s: float = 5.0) -> tuple[AdminApi, Scripted, list[str]]:
        server = scripted(*replies)
        script, said = server.__enter__(), list[str]()
        api = AdminApi(ApiTarget(script.url), patience_s, said.append)
        opened.append((api, server))
        return api, script, said

    yield make
    for api, server in opened:
        api.__exit__(None, None, None)
        server.__exit__(None, None, None)


def test_an_unavailable_server_is_asked_again_and_reported_once(calls: Calls) -> None:
    api, script, said = calls(problem(503, "It restores."), problem(429), Reply(200, {"a": 1}))
    assert api.get("/v1/x") == {"a": 1}
    assert len(script.asked) == 3
    assert said == ["Waiting: It restores."]


def test_what_does_not_answer_in_time_is_given_up_with_its_reason(calls: Calls) -> None:
    late = Reply(503, {"title": "T", "detail": "It restores."}, {"Retry-After": "60"})
    api, script, _ = calls(late, patience_s=2.0)
    with pytest.raises(ExitError, match=r"It restores") as ended:
        api.get("/v1/x")
    assert ended.value.exit_code == AdminExit.UNREACHABLE
    assert len(script.asked) == 1


def test_a_post_is_tried_again_under_the_same_key_and_another_one_has_another(calls: Calls) -> None:
    api, script, _ = calls(Reply(None), problem(503), Reply(200, {}), Reply(200, {}))
    api.post("/v1/x", {"a": 1})
    api.post("/v1/x", {"a": 1})
    keys = [asked.headers["Idempotency-Key"] for asked in script.asked]
    assert len(set(keys[:3])) == 1
    assert len(set(keys)) == 2


def test_the_first_request_that_still_runs_is_waited_for(calls: Calls) -> None:
    still = problem(409, kind="idempotency-in-progress")
    api, script, _ = calls(still, Reply(200, {"a": 1}))
    assert api.post("/v1/x") == {"a": 1}
    assert len(script.asked) == 2


def test_a_put_whose_connection_broke_is_not_sent_again(calls: Calls) -> None:
    api, script, _ = calls(Reply(None))
    with pytest.raises(ExitError, match="broke"):
        api.put("/v1/x", {}, '"1"')
    assert len(script.asked) == 1
    assert script.asked[0].headers["If-Match"] == '"1"'


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (problem(400), 2, "So it is."),
        (problem(401), 5, "--token-file"),
        (problem(403), 5, "role"),
        (problem(404), 3, "So it is."),
        (problem(409, kind="name-in-use"), 4, "So it is."),
        (problem(412), 4, "run the command again"),
        (problem(422, kind="invalid-request"), 2, "So it is."),
        (problem(422, kind="not-possible"), 1, "So it is."),
        (problem(500, trace_id="abc"), 1, "abc"),
        (Reply(502, "<html>"), 6, "502"),
        (Reply(302, None, {"Location": "/"}), 6, "302"),
        (Reply(200, ["a"]), 6, "no JSON object"),
    ],
)
def test_a_refusal_is_a_sentence_and_a_code(
    calls: Calls, reply: Reply, code: int, words: str
) -> None:
    api, _, _ = calls(reply)
    with pytest.raises(ExitError) as ended:
        api.get("/v1/x")
    assert (int(ended.value.exit_code), words in ended.value.sentence) == (code, True)


def test_every_fault_of_a_request_is_reported_with_its_location(calls: Calls) -> None:
    faults = [{"pointer": "/body/a", "detail": "is too long", "code": "c"}]
    api, _, _ = calls(problem(422, "Two faults.", "invalid-request", errors=faults))
    with pytest.raises(ExitError) as ended:
        api.put("/v1/x", {})
    assert ended.value.sentence.splitlines() == ["Two faults.", "/body/a: is too long"]


def test_pages_are_read_as_one_document_up_to_a_limit(calls: Calls) -> None:
    pages = [
        Reply(200, {"rows": [1, 2], "next_page_token": "t", "complete": False}),
        Reply(200, {"rows": [3], "next_page_token": None, "complete": True}),
    ]
    api, script, _ = calls(*pages)
    assert api.pages("/v1/x", "rows", 5, name=None, topic=["a", "b"]) == {
        "rows": [1, 2, 3],
        "next_page_token": None,
        "complete": True,
    }
    assert [asked.path for asked in script.asked] == [
        "/v1/x?topic=a&topic=b&page_size=5",
        "/v1/x?topic=a&topic=b&page_token=t&page_size=3",
    ]


def test_the_token_goes_to_the_service_and_into_no_error(calls: Calls) -> None:
    _, script, _ = calls(problem(403))
    with (
        AdminApi(ApiTarget(script.url, token="s3cret"), 1.0, print) as api,  # noqa: S106 - it is none
        pytest.raises(ExitError) as ended,
    ):
        api.get("/v1/x")
    assert script.asked[0].headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in ended.value.sentence
    assert "s3cret" not in repr(ApiTarget(script.url, token="s3cret"))  # noqa: S106


def test_a_path_holds_any_character_and_walks_nowhere() -> None:
    assert path_of("v1", "addresses", "a/b c+d%é") == "/v1/addresses/a%2Fb%20c%2Bd%25%C3%A9"
    assert path_of("v1", "..", ".") == "/v1/%2E%2E/%2E"


def test_a_service_that_does_not_answer_is_given_up(shell: Shell) -> None:
    held = threading.Event()
    with scripted(Reply(200, {})) as script:
        script.reply = lambda: (held.wait(LIMIT_S), Reply(200, {}))[1]  # type: ignore[method-assign]
        ran = shell("status", "--url", script.url, "--timeout", "0.1")
        held.set()
    assert ran.code == 6
    assert "did not answer within" in ran.err


def test_https_to_an_api_without_tls_is_told_to_write_http() -> None:
    with scripted() as script:
        url = script.url.replace("http:", "https:")
        with pytest.raises(ExitError) as ended, AdminApi(ApiTarget(url), 5.0, print) as api:
            api.get("/v1/status")
    assert ended.value.sentence.startswith(f"{url} does not speak TLS: write http://")
