"""Duplicates that differ from their originals: found, counted and reported on both fast paths."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

import pytest
import structlog

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.model import RouteSettings
from ringfence_service.queries.status import RouteCounts
from tests.fakes.admin import FakeAdmin
from tests.loop.test_two_hops import Hops
from tests.support.living import ORDERS, ROUTE, Living, refused, turns
from tests.support.native import native_rings, needs_native

CUSTOMER: Final = replace(ROUTE, id="{json:/customer}")
"""An id that names more than one message."""


@pytest.fixture(params=["python", pytest.param("native", marks=needs_native)])
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with native_rings() if request.param == "native" else nullcontext():
        yield


def counted(living: Living) -> tuple[RouteCounts, ...]:
    """The status after all samples are compared, which the metrics agree with."""
    loop = living.running()
    turns(loop, 3)
    while living.comparer.compare_next():
        pass
    living.watch.publish("running", ())
    loop.close()
    routes = living.board.read().routes
    exposed = living.metrics.exposition().decode()
    for found in routes:
        same, name = found.compared - found.different, found.route
        results = (("same", same), ("different", found.different))
        for result, number in (*results, ("not-compared", found.not_compared)):
            labels = f'{{result="{result}",route="{name}"}}'
            line = f"ringfence_duplicates_compared_total{labels} {float(number)}"
            assert (line in exposed) == bool(number)
    return routes


def write(living: Living, identifier: str, *values: bytes, topic: str = "orders") -> None:
    for value in values:
        living.write(value, (DUPLICATE_ID, identifier.encode()), topic=topic)


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("on_duplicate", ["dead_letter", "drop", "mark"])
@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_a_duplicate_with_another_content_is_counted(on_duplicate: str, strategy: str) -> None:
    living = Living(addresses={"#": {"on_duplicate": on_duplicate, "strategy": strategy}})
    write(living, "a", b"one", b"two")
    with structlog.testing.capture_logs() as logs:
        assert counted(living) == (RouteCounts("orders", 2, compared=1, different=1),)
    (line,) = [each for each in logs if each["event"] == "duplicate_differs"]
    assert (line["route"], line["duplicate"], line["original"]) == (
        "orders",
        "orders-0@1",
        "orders-0@0",
    )
    assert "1 of 1 that were compared" in str(living.board.read().routes[0].duplicates_warning)


@pytest.mark.usefixtures("_path")
def test_a_resend_is_the_same_however_it_is_serialised() -> None:
    living = Living()
    write(living, "a", b'{"x": 1, "y": 2}', b'{"y":2.0,"x":1}')
    assert counted(living) == (RouteCounts("orders", 2, compared=1),)
    assert living.board.read().routes[0].duplicates_warning is None


@pytest.mark.usefixtures("_path")
def test_an_id_template_that_names_several_messages_shows() -> None:
    living = Living(CUSTOMER)
    for number in range(10):
        living.write(b'{"customer": "c", "order": %d}' % number)
    assert counted(living) == (RouteCounts("orders", 10, compared=2, different=2),)


@pytest.mark.usefixtures("_path")
def test_what_the_digest_of_a_template_leaves_out_does_not_count() -> None:
    living = Living(replace(ROUTE, id="{sha256-json:/order without /sent_at}"))
    for at, line in ((1, 7), (2, 7), (3, 8)):
        living.write(b'{"order": {"id": 1, "sent_at": %d}, "line": %d}' % (at, line))
    assert counted(living) == (RouteCounts("orders", 3, compared=2, different=1),)


@pytest.mark.usefixtures("_path")
def test_the_second_hop_reads_the_originals_in_the_inputs() -> None:
    hops = Hops(replace(ROUTE, scope="address"))
    for partition, value in enumerate((b"one", b"one", b"two")):
        hops.living.write(value, (DUPLICATE_ID, b"a"), key=b"k", partition=partition)
    hops.turns()
    while hops.living.comparer.compare_next():
        pass
    hops.living.watch.publish("running", ())
    (found,) = hops.living.board.read().routes
    assert (found.compared, found.different, found.not_compared) == (2, 1, 0)


@pytest.mark.usefixtures("_path")
def test_an_original_that_is_gone_is_not_compared() -> None:
    living = Living()
    write(living, "a", b"one")
    living.running().close()
    FakeAdmin(living.cluster).delete_before({ORDERS: 1})
    write(living, "a", b"two")
    (found,) = counted(living)
    assert (found.compared, found.not_compared) == (0, 1)


@pytest.mark.usefixtures("_path")
def test_a_loud_route_leaves_room_for_a_quiet_one() -> None:
    other = RouteSettings(name="other", inputs=("other",), scope="partition")
    living = Living(others=(other,))
    write(living, "a", *(b"%d" % number for number in range(500)))
    write(living, "a", b"one", b"two", topic="other")
    with structlog.testing.capture_logs() as logs:
        loud, quiet = counted(living)
    lines = [each["route"] for each in logs if each["event"] == "duplicate_differs"]
    assert lines == ["orders", "other"]
    assert (loud.route, loud.compared, loud.different) == ("orders", 2, 2)
    assert (quiet.route, quiet.compared, quiet.different) == ("other", 1, 1)


@pytest.mark.usefixtures("_path")
def test_duplicates_of_an_aborted_transaction_are_compared_once() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([refused(), refused()])
    write(living, "a", b"one", b"two")
    loop = living.running()
    for _ in range(20):
        living.cluster.wait(1)
        loop.turn()
    assert living.board.read().counts.transactions_aborted == 2
    (found,) = counted(living)
    assert (found.compared, found.different) == (1, 1)
