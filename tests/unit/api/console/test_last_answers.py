"""The last answers of the loops: to whom, for how long and how many are shown again."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ringfence_api.console.client import ApiReply
from ringfence_api.console.last_answers import (
    ANSWER_BYTES_MAX,
    BYTES_MAX,
    KEPT_S,
    LastAnswers,
    oldest,
)
from ringfence_api.principal import ANYBODY, Principal, set_principal
from ringfence_api.problems import FORBIDDEN, MEDIA_TYPE, TYPE_PREFIX, UNAVAILABLE, ProblemKind

ADA = Principal("ada", frozenset({"viewer"}), "token")


class Api:
    """Answers each query with itself, or with a problem."""

    def __init__(self) -> None:
        self.problem: ProblemKind | None = None
        self.meanwhile: Callable[[], None] | None = None
        self.more = ""
        self.now_s = 0.0
        self.last = LastAnswers(lambda: self.now_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self.meanwhile is not None:
            self.meanwhile()
        query = scope["query_string"].decode()
        answer: Response = JSONResponse({"query": query, "more": self.more})
        if self.problem is not None:
            name, status, title = self.problem
            problem = {"type": f"{TYPE_PREFIX}{name}", "title": title, "detail": "because"}
            answer = JSONResponse(problem, status, media_type=MEDIA_TYPE)
        await answer(scope, receive, send)

    def get(self, who: Principal = ADA, path: str = "/v1/ids", **query: Any) -> ApiReply:
        """Read a resource for a user."""
        scope: Scope = {"type": "http", "app": self, "headers": [], "path": "/", "state": {}}
        set_principal(scope, who)
        return asyncio.run(self.last.get(Request(scope), path, query))


@pytest.fixture
def api() -> Api:
    return Api()


def test_the_last_answer_is_shown_with_its_time_while_there_is_none(api: Api) -> None:
    before, api.problem = api.get(id="a", page_token=None), UNAVAILABLE
    again = api.get(id="a")
    assert again.document == before.document == {"query": "id=a", "more": ""}
    assert before.as_of is None
    assert again.as_of is not None
    assert again.ok
    assert oldest(before, None, again) == again.as_of
    assert oldest(before, None) is None


def test_it_is_shown_for_no_other_query_and_no_other_user(api: Api) -> None:
    api.get(id="a")
    api.problem = UNAVAILABLE
    others = (ADA._replace(name="bob"), ADA._replace(roles=frozenset({"admin"})), ANYBODY)
    for reply in (
        *(api.get(who, id="a") for who in others),
        api.get(id="b"),
        api.get(id="a", page_size=1),
        api.get(path="/v1/addresses", id="a"),
    ):
        assert reply.problem is not None
        assert reply.problem.status == 503


def test_another_problem_than_a_loop_without_time_is_shown(api: Api) -> None:
    api.get(id="a")
    api.problem = FORBIDDEN
    assert not api.get(id="a").ok


def test_it_is_never_older_than_its_limit(api: Api) -> None:
    api.get(id="a")
    api.problem, api.now_s = UNAVAILABLE, KEPT_S
    assert api.get(id="a").ok
    api.now_s += 0.001
    assert not api.get(id="a").ok
    assert api.last.kept_bytes == 0


def test_none_from_before_a_change_is_shown_also_if_it_was_under_way(api: Api) -> None:
    api.get(id="a")
    api.meanwhile = api.last.clear
    api.get(id="b")
    api.meanwhile, api.problem = None, UNAVAILABLE
    assert not api.get(id="a").ok
    assert not api.get(id="b").ok


def test_the_oldest_answers_leave_when_all_have_too_many_bytes(api: Api) -> None:
    api.more = "x" * (ANSWER_BYTES_MAX - 2_000)
    for name in "abcdefghijk":
        api.get(id=name)
        api.get(id="a")
        assert api.last.kept_bytes <= BYTES_MAX
    api.more += "x" * 1_000
    api.get(id="too long")
    api.problem = UNAVAILABLE
    shown = [name for name in "abcdefghijk" if api.get(id=name).ok]
    assert shown == list("aefghijk")
    assert not api.get(id="too long").ok
