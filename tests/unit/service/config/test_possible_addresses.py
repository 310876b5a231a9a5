"""Which addresses are spread over several partitions, by the templates of their routes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.model import RouteSettings
from ringfence_service.config.possible_addresses import Shares, may_meet, possible_addresses

TEMPLATES = ("{topic}", "a", "{key}", "a{key}", "{key}b", "a.{key}.{header:X}", "ab{key}b{key}ab")


@pytest.mark.parametrize("template", TEMPLATES)
@given(address=st.text("ab.", max_size=8))
def test_an_address_is_spread_iff_a_route_with_scope_id_may_yield_it(
    template: str, address: str
) -> None:
    route = RouteSettings(name="r", inputs=("ab", "^b.*"), scope="id", address=template)
    other = RouteSettings(name="s", inputs=("c",), scope="address", address=address or "x")
    may = any(may_meet(each, tuple(address)) for each in possible_addresses(route))
    assert Shares.of([other, route], 12).count(address) == (12 if may else 1)


def test_an_address_of_any_length_is_looked_for() -> None:
    route = RouteSettings(name="r", inputs=("in",), scope="id", address="{key}x{key}")
    assert Shares.of([route], 12).count("y" * 4096) == 1
    assert Shares.of([route], 12).count("y" * 4096 + "x") == 12
