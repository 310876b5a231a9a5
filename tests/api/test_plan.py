"""Plans over HTTP: a rate and a retry window become a size."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from service.control import Inbox
from service.queries.addresses import AddressAnswer, MemoryStatus
from service.queries.settings import EffectiveSetting
from tests.api.fake_service import RUNNING, Clock, make_view, serving

SETTINGS = {
    "strategy": EffectiveSetting("ring", "default"),
    "id_cache_size": EffectiveSetting(20_000, "#"),
    "on_duplicate": EffectiveSetting("drop", "orders"),
    "window_size": EffectiveSetting(10_000, "default"),
    "window_ms": EffectiveSetting(1_800_000, "default"),
}
FULL = MemoryStatus("in", 0, 20_000, 20_000, 1, 0, 199_990, 199_990)
"""100 messages a second, full."""


@pytest.fixture
def known() -> dict[str, Any]:
    """What the loop knows of every address."""
    return {"settings": SETTINGS, "partitions": (FULL,), "complete": True}


@pytest.fixture
def plan(clock: Clock, known: dict[str, Any]) -> Iterator[Callable[..., dict[str, Any]]]:
    inbox = Inbox(depth=4)
    client = TestClient(create_app(make_view(RUNNING, clock, inbox)), base_url="http://127.0.0.1")

    def ask(body: dict[str, Any], name: str = "orders") -> dict[str, Any]:
        reply = client.post("/v1/addresses:plan", params={"name": name}, json=body)
        document: dict[str, Any] = reply.json()
        return document

    with serving(inbox, lambda query: AddressAnswer(query.address, **known)):  # type: ignore[union-attr]
        yield ask


Plan = Callable[..., dict[str, Any]]


def test_the_rate_is_what_the_ids_tell_and_the_answer_says_how_to_set_the_size(plan: Plan) -> None:
    told = plan({"retry_window": "PT30M"})
    assert told["rate_is_observed"]
    assert told["messages_per_second"] == pytest.approx(100)
    assert told["ids_needed"] == 180_000
    assert (told["recommended"], told["safety_factor"]) == (270_000, 1.5)
    assert (told["present"], told["is_enough"], told["horizon_ms"]) == (20_000, False, 199_990)
    assert told["present_reach_ms"] == 200_000
    assert told["memory_bytes"] == 270_000 * 12
    assert told["disk_bytes"] == told["changelog_bytes"] == 270_000 * 44
    assert told["request"] == {
        "method": "PUT",
        "path": "/v1/address-settings/orders",
        "body": {"id_cache_size": 270_000, "on_duplicate": "drop"},
    }


@pytest.mark.parametrize("window", [1800, 1800.0, "1800", "30m", "PT30M", "0.5h"])
def test_a_time_may_be_written_in_several_ways(plan: Plan, window: object) -> None:
    assert plan({"retry_window": window})["retry_window_ms"] == 1_800_000


def test_a_size_that_is_enough_needs_no_request(plan: Plan) -> None:
    told = plan({"retry_window": "1m", "messages_per_second": 10})
    assert (told["ids_needed"], told["recommended"]) == (600, 900)
    assert told["is_enough"]
    assert told["request"] is None


def test_a_window_needs_the_time_as_well_as_the_size(plan: Plan, known: dict[str, Any]) -> None:
    known["settings"] = {**SETTINGS, "strategy": EffectiveSetting("window", "#")}
    told = plan({"retry_window": "2h", "messages_per_second": 0.001})
    assert not told["is_enough"]
    assert told["request"]["body"] == {
        "window_size": 10_000,
        "window_ms": 7_200_000,
        "on_duplicate": "drop",
    }


def test_an_address_of_wildcards_is_set_literally(plan: Plan) -> None:
    told = plan({"retry_window": "30m"}, "a/*")
    assert told["request"]["path"] == "/v1/address-settings/%28a%2F%2A%29"


@pytest.mark.parametrize(
    ("change", "body", "sentence"),
    [
        ({"partitions": ()}, {"retry_window": 60}, "messages_per_second"),
        ({}, {"retry_window": "366d", "messages_per_second": 1e9}, "shorten the retry window"),
        ({"settings": {**SETTINGS, "strategy": EffectiveSetting("sequence", "#")}}, {}, "numbers"),
        ({"settings": {**SETTINGS, "strategy": EffectiveSetting("off", "#")}}, {}, "set ring"),
    ],
)
def test_where_no_size_can_be_told_it_says_why(
    plan: Plan,
    known: dict[str, Any],
    change: dict[str, Any],
    body: dict[str, Any],
    sentence: str,
) -> None:
    known |= change
    told = plan({"retry_window": 60, **body})
    assert told["status"] == 422
    assert sentence in told["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"retry_window": 0},
        {"retry_window": -1},
        {"retry_window": True},
        {"retry_window": "soon"},
        {"retry_window": "PT"},
        {"retry_window": 60, "messages_per_second": 0},
        {"retry_window": 60, "rate": 1},
    ],
)
def test_a_need_that_is_none_names_its_fault(plan: Plan, body: dict[str, Any]) -> None:
    told = plan(body)
    assert told["type"] == "urn:ringfence:problem:invalid-request"
    assert told["errors"][0]["pointer"].startswith("/body")
