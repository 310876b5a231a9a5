"""The list of addresses: in pages, by name or by what matters."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.api.conftest import HELD

NAMES = sorted({address for address, _ in HELD})


def pages(client: TestClient, **params: Any) -> list[str]:
    """The addresses of all pages."""
    found: list[str] = []
    while True:
        page = client.get("/v1/addresses", params=params).json()
        found += [each["address"] for each in page["addresses"]]
        assert page["complete"]
        if page["next_page_token"] is None:
            return found
        params["page_token"] = page["next_page_token"]


@pytest.mark.parametrize("page_size", [1, 2, 100])
@pytest.mark.parametrize("sort", ["name", "ids_held", "horizon", "-fill"])
def test_every_address_is_listed_once(client: TestClient, sort: str, page_size: int) -> None:
    assert sorted(pages(client, sort=sort, page_size=page_size)) == NAMES


def test_the_largest_come_first_where_a_minus_stands_before_the_order(client: TestClient) -> None:
    assert pages(client, sort="-duplicates", page_size=1) == ["orders", "a/b c+d%é"]
    assert pages(client, sort="duplicates", page_size=1) == ["a/b c+d%é", "orders"]


def test_an_address_tells_what_is_known_of_it(client: TestClient) -> None:
    page = client.get("/v1/addresses", params={"prefix": "ord"}).json()
    assert page["counted_since"] == "1970-01-01T00:00:01Z"
    assert page["addresses"] == [
        {
            "address": "orders",
            "strategy": "ring",
            "ids_held": 3,
            "capacity": 20_000,
            "fill": 3 / 20_000,
            "bytes": 390,
            "horizon_ms": None,
            "oldest_time": None,
            "newest_time": None,
            "accepted": 7,
            "duplicates": 3,
            "partitions": 1,
        }
    ]


def test_a_token_of_another_order_is_refused(client: TestClient) -> None:
    first = client.get("/v1/addresses", params={"page_size": 1}).json()
    params = {"sort": "-fill", "page_token": first["next_page_token"]}
    response = client.get("/v1/addresses", params=params)
    assert response.status_code == 422
    assert "-fill" in response.json()["detail"]
