"""What a record of a live topic is known by: as its route would have read it."""

from dataclasses import replace

import pytest
from confluent_kafka import Message

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.route import InputRoute
from ringfence_service.import_ids.source import IdSource
from tests.support.helpers import some

ROUTE = RouteSettings(name="r", inputs=("in",), address="{header:addr}")
STAMP = b"cluster/topic/0/17"


def message(
    *headers: tuple[str, bytes | None], key: bytes | None = None, time_ms: int = 1_700_000_000_123
) -> Message:
    """One of topic `live`, of address a."""
    return Message(
        topic="live",
        partition=2,
        offset=9,
        key=key,
        value=b"v",
        headers=[("addr", b"a"), *headers],
        timestamp=(1, time_ms),
    )


def past(route: RouteSettings = ROUTE, address: str | None = None, **settings: object) -> IdSource:
    return IdSource(InputRoute.bind(route, "in"), AddressBook.of({"#": settings}), address)


def test_a_record_is_known_by_its_id_at_its_address_and_by_its_own_place() -> None:
    line = some(past().line(message((DUPLICATE_ID, b"x\xff"))))
    assert line.address == "a"
    assert line.row == {
        "id": "hex:78ff",
        "topic": "live",
        "partition": 2,
        "offset": 9,
        "time": "2023-11-14T22:13:20.123000+00:00",
    }


def test_an_id_may_be_made_by_the_route() -> None:
    line = some(past(replace(ROUTE, id="k-{key}")).line(message(key=b"7")))
    assert line.row["id"] == "k-7"


def test_the_topic_of_an_address_is_the_input_and_not_where_it_was_read() -> None:
    line = some(past(replace(ROUTE, address="{topic}")).line(message((DUPLICATE_ID, b"x"))))
    assert line.address == "in"


def test_an_address_that_is_named_stands_in_for_all() -> None:
    line = some(past(address="b").line(message((DUPLICATE_ID, b"x"))))
    assert line.address == "b"


def test_what_was_stamped_on_its_way_is_known_where_stamps_are() -> None:
    line = some(past().line(message((DUPLICATE_ID, STAMP))))
    assert line.address == "BRIDGE.a"


def test_a_record_without_a_time_tells_none() -> None:
    line = some(past().line(message((DUPLICATE_ID, b"x"), time_ms=-1)))
    assert line.row["time"] is None


@pytest.mark.parametrize(
    ("settings", "headers", "why"),
    [
        ({}, (), "they have no id"),
        ({"strategy": "sequence"}, ((DUPLICATE_ID, b"x"),), "strategy sequence"),
        ({"strategy": "off"}, ((DUPLICATE_ID, b"x"),), "strategy off"),
        ({}, ((DUPLICATE_ID, b"x"), ("_AMQ_DUPL_ID", b"y")), "differ"),
        (
            {"strategy": "window"},
            ((DUPLICATE_ID, b"x"), ("_PUBLISHER", b"p")),
            "ids of each publisher",
        ),
    ],
)
def test_what_is_not_adopted_is_counted_by_its_reason(
    settings: dict[str, object], headers: tuple[tuple[str, bytes], ...], why: str
) -> None:
    own = past(ROUTE, None, **settings)
    assert own.line(message(*headers)) is None
    ((reason, count),) = own.left_out.items()
    assert why in reason
    assert count == 1


def test_a_record_that_names_no_address_is_left_out() -> None:
    own = past(replace(ROUTE, address="{key}"))
    assert own.line(message((DUPLICATE_ID, b"x"))) is None
    assert own.left_out.total() == 1
