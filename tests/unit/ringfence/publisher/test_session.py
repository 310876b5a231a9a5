"""Sessions: what is asked of the admin API, and what each answer means."""

import socket
from collections.abc import Iterator

import pytest

from ringfence_client.publisher import session as session_module
from ringfence_client.publisher.errors import AwayError, NameInUseError, RefusedError
from ringfence_client.publisher.session import HttpSessionClient, Session
from tests.fakes.admin_api import AdminApi, problem, served
from tests.fakes.judge import Judge


@pytest.fixture
def api() -> Iterator[AdminApi]:
    with served(AdminApi(Judge())) as running:
        yield running


def sessions(api: AdminApi, user: str = "u", token: str | None = None) -> HttpSessionClient:
    return HttpSessionClient(f"{api.url}/", "a/p ü", "orders", user, token)


def test_a_session_has_an_epoch_and_the_last_number_at_the_address(api: AdminApi) -> None:
    api.judge.last = 40
    assert sessions(api).open() == Session(1, 40)
    assert sessions(api).open() == Session(2, 40)
    assert sessions(api).look_up() == Session(2, 40)


def test_the_name_is_encoded_and_the_user_and_token_are_said(api: AdminApi) -> None:
    sessions(api, "me", "secret").open()
    (request,) = api.requests
    assert (request.method, request.path) == ("PUT", "/v1/publishers/a%2Fp%20%C3%BC/session")
    assert request.body == {"user": "me"}
    assert request.headers["Authorization"] == "Bearer secret"


def test_an_address_missing_from_the_answer_has_no_number(api: AdminApi) -> None:
    api.address = "other"
    api.judge.last = 40
    assert sessions(api).open() == Session(1, 0)


def test_without_a_session_there_is_a_number_and_no_epoch(api: AdminApi) -> None:
    api.judge.last = 40
    assert sessions(api).look_up() == Session(0, 40)
    assert api.requests[0].path == "/v1/publishers/a%2Fp%20%C3%BC"


def answer(complete: str, *numbers: int) -> tuple[int, dict[str, str], str]:
    standings = ",".join(f'{{"address": "orders", "sequence": {number}}}' for number in numbers)
    return 200, {}, f'{{"epoch": 1, "sequences": [{standings}], "complete": {complete}}}'


def test_an_answer_that_names_the_address_is_enough(api: AdminApi) -> None:
    api.answers = [answer("false", 7)]
    assert sessions(api).open() == Session(1, 7)


def test_of_two_partitions_the_higher_number_counts(api: AdminApi) -> None:
    api.answers = [answer("true", 9, 7)]
    assert sessions(api).open() == Session(1, 9)


def test_another_user_learns_that_the_name_is_in_use(api: AdminApi) -> None:
    sessions(api, "first").open()
    with pytest.raises(NameInUseError, match="first holds the name"):
        sessions(api, "second").open()


@pytest.mark.parametrize("wish", ["7", "0", None, "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_not_yet_is_asked_again_when_the_service_wishes(api: AdminApi, wish: str | None) -> None:
    headers = {} if wish is None else {"Retry-After": wish}
    api.answers = [(503, headers, problem("about:blank", "partitions move"))]
    with pytest.raises(AwayError, match="partitions move") as away:
        sessions(api).open()
    assert away.value.retry_after_s == (7 if wish == "7" else 0)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, "<html>"),
        (200, "[]"),
        (200, '{"epoch": 1}'),
        (200, '{"epoch": 1, "sequences": [{}], "complete": true}'),
        (200, '{"epoch": 1, "sequences": [], "complete": false}'),
        (409, '{"type": "about:blank"}'),
        (429, ""),
        (500, "oh"),
        (502, "<html>"),
    ],
)
def test_whatever_may_be_better_next_time_is_asked_again(
    api: AdminApi, status: int, text: str
) -> None:
    api.answers = [(status, {}, text)]
    with pytest.raises(AwayError):
        sessions(api).open()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 499])
def test_an_error_that_no_retry_would_fix_is_a_refusal(api: AdminApi, status: int) -> None:
    api.answers = [(status, {}, problem("about:blank", "because"))]
    with pytest.raises(RefusedError, match=f"{status}: because"):
        sessions(api).open()


def test_a_refusal_without_a_detail_has_its_title(api: AdminApi) -> None:
    api.answers = [(422, {}, '{"type": "about:blank", "title": "no such thing"}')]
    with pytest.raises(RefusedError, match="422: no such thing"):
        sessions(api).open()


def test_a_session_that_cannot_be_read_now_is_asked_for_again(api: AdminApi) -> None:
    api.answers = [(503, {}, "")]
    with pytest.raises(AwayError):
        sessions(api).look_up()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["open", "look_up"])
def test_a_redirect_is_refused_and_the_token_goes_nowhere_else(
    api: AdminApi, status: int, method: str
) -> None:
    with served(AdminApi(Judge())) as other:
        target = f"{other.url.replace('127.0.0.1', 'localhost')}/v1/publishers/p"
        api.answers = [(status, {"Location": target}, "")]
        with pytest.raises(RefusedError, match=f"redirects to '{target}'"):
            getattr(sessions(api, "u", "secret"), method)()
        assert other.requests == []


@pytest.mark.parametrize("status", [200, 422])
def test_no_more_of_a_response_is_read_than_fits_into_memory(
    api: AdminApi, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_RESPONSE_BYTES_MAX", 1000)
    monkeypatch.setattr(session_module, "_PROBLEM_BYTES_MAX", 1000)
    padded = answer("true", 7)[2].ljust(1001)
    api.answers = [(status, {}, padded[:1000]), (status, {}, padded)]
    if status == 200:
        assert sessions(api).open() == Session(1, 7)
        with pytest.raises(AwayError, match="longer than 1000 bytes"):
            sessions(api).open()
        return
    api.answers = [(status, {}, problem("about:blank", "x" * 1000))]
    with pytest.raises(RefusedError) as refused:
        sessions(api).open()
    assert "xx" not in str(refused.value)


@pytest.mark.parametrize("status", [404, 405])
def test_a_service_that_does_not_tell_its_sessions_is_no_fault(api: AdminApi, status: int) -> None:
    api.answers = [(status, {}, "")]
    assert sessions(api).look_up() is None


def test_nobody_there_is_away() -> None:
    with pytest.raises(AwayError, match="gives no answer"):
        HttpSessionClient("http://127.0.0.1:1", "p", "orders", "u").open()


def test_a_service_that_never_answers_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(AwayError, match="timed out"):
            HttpSessionClient(url, "p", "orders", "u").open()


def test_what_is_no_token_is_said_at_once_and_not_repeated() -> None:
    for url, token in (
        ("http://a", "geheim\n"),
        ("http://a", "geheim b"),
        ("http://u:geheim@a", "t"),
    ):
        with pytest.raises(ValueError, match="token") as refused:
            HttpSessionClient(url, "p", "a", "u", token)
        assert "geheim" not in str(refused.value)


def test_what_is_no_url_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        HttpSessionClient("127.0.0.1:8080", "p", "orders", "u")
