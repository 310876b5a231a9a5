"""Every list has the same pages; a page tells where the next begins, and whether all were asked."""

from typing import Any, Final

import pytest
from starlette.testclient import TestClient

LISTS: Final = {
    "/v1/addresses": "addresses",
    "/v1/addresses?sort=-fill": "addresses",
    "/v1/addresses?sort=horizon": "addresses",
    "/v1/addresses/orders/ids": "ids",
    "/v1/addresses/orders/ids:export": "ids",
    "/v1/publishers": "publishers",
    "/v1/routes": "routes",
    "/v1/address-settings": "address_settings",
    "/v1/settings/revisions": "revisions",
    "/v1/audit": "records",
    "/v1/dead-letters": "dead_letters",
    "/v1/redrives": "redrives",
}
ANSWERED: Final = list(LISTS)[:6]
"""Lists that the loops answer, each page from all of them."""
NEVER_TOLD: Final = ("x", "e30", "WzFd", "\u00e9", "WyJhIiwwLC0xLG51bGxd")


@pytest.fixture
def lists(client: TestClient) -> TestClient:
    """A service each of whose lists has two rows or more."""
    client.put("/v1/routes/more", json={"inputs": ["more"]})
    client.put("/v1/address-settings/a", json={"id_cache_size": 7})
    for _ in range(2):
        assert client.post("/v1/redrives", json={"mode": "through"}).status_code == 202
    return client


def page_of(client: TestClient, path: str, **params: Any) -> dict[str, Any]:
    document: dict[str, Any] = client.get(path, params=params).json()
    return document


def test_pages_of_any_size_hold_together_what_one_page_holds(lists: TestClient) -> None:
    for path, name in LISTS.items():
        whole = page_of(lists, path, page_size=1_000)[name]
        assert len(whole) > 1, path
        for page_size in range(1, len(whole) + 1):
            found: list[Any] = []
            params: dict[str, Any] = {"page_size": page_size}
            while params.get("page_token", "") is not None:
                page = page_of(lists, path, **params)
                assert 0 < len(page[name]) <= page_size, path
                is_last = page["next_page_token"] is None
                assert page["complete"] or (not is_last and path not in ANSWERED), path
                found += page[name]
                params["page_token"] = page["next_page_token"]
            assert found == whole, path


def test_a_page_has_one_to_a_thousand(client: TestClient) -> None:
    for path in LISTS:
        for page_size in ("0", "1001", "-1", "x"):
            refused = client.get(path, params={"page_size": page_size})
            assert refused.status_code == 422, path
            assert refused.json()["errors"][0]["pointer"] == "/query/page_size"


def test_a_token_that_no_page_of_this_list_has_given_is_refused(lists: TestClient) -> None:
    told = {path: page_of(lists, path, page_size=1)["next_page_token"] for path in ANSWERED}
    for path, name in LISTS.items():
        others = {token for other, token in told.items() if LISTS[other] != name}
        for token in {*NEVER_TOLD, *others} if path in ANSWERED else {"no"}:
            refused = lists.get(path, params={"page_token": token})
            assert refused.status_code == 422, (path, token)
            assert "page token" in refused.json()["detail"], path
