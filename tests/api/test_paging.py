"""Every list has the same pages; a page tells where the next begins, and whether all were asked."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

LISTS = {
    "/v1/addresses": "addresses",
    "/v1/addresses/orders/ids": "ids",
    "/v1/addresses/orders/ids:export": "ids",
    "/v1/publishers": "publishers",
}
every_list = pytest.mark.parametrize(("path", "name"), LISTS.items())


@every_list
@pytest.mark.parametrize("page_size", [1, 2, 3, 1_000])
def test_pages_of_any_size_hold_together_what_one_page_holds(
    client: TestClient, path: str, name: str, page_size: int
) -> None:
    whole = client.get(path, params={"page_size": 1_000}).json()
    found: list[Any] = []
    params: dict[str, Any] = {"page_size": page_size}
    while True:
        page = client.get(path, params=params).json()
        assert 0 < len(page[name]) <= page_size
        assert page["complete"] is True
        found += page[name]
        if page["next_page_token"] is None:
            break
        params["page_token"] = page["next_page_token"]
    assert found == whole[name]
    assert len({json.dumps(each) for each in found}) == len(found)


@every_list
@pytest.mark.parametrize("page_size", ["0", "1001", "-1", "x"])
def test_a_page_has_one_to_a_thousand(
    client: TestClient, path: str, name: str, page_size: str
) -> None:
    response = client.get(path, params={"page_size": page_size})
    assert response.status_code == 422, name
    assert response.json()["errors"][0]["pointer"] == "/query/page_size"


@every_list
def test_a_token_of_one_list_is_none_of_another(client: TestClient, path: str, name: str) -> None:
    tokens = {
        other: client.get(other, params={"page_size": 1}).json()["next_page_token"]
        for other in LISTS
    }
    for other, token in tokens.items():
        if LISTS[other] != name:
            assert client.get(path, params={"page_token": token}).status_code == 422
