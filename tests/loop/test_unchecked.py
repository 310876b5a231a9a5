"""Messages that pass unchecked: how many, of which route and why, on both fast paths."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Final

import pytest
import structlog

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from ringfence_service.config.model import RouteSettings
from ringfence_service.processor.unchecked import LOGGED_EVERY_S
from ringfence_service.queries.status import RouteCounts
from tests.loop.test_two_hops import Hops
from tests.support.living import ROUTE, Headers, Living, in_group, refused, turns
from tests.support.native import native_rings, needs_native

JSON: Final = replace(ROUTE, id="{json:/orderId}")
ORDER: Final = b'{"order_id": "7", "customer": "c"}'


@pytest.fixture(params=["python", pytest.param("native", marks=needs_native)])
def _path(request: pytest.FixtureRequest) -> Iterator[None]:
    with native_rings() if request.param == "native" else nullcontext():
        yield


def counted(living: Living) -> RouteCounts:
    """The status after all records are decided, which the metrics agree with."""
    loop = living.running()
    turns(loop, 3)
    living.watch.publish("running", ())
    loop.close()
    (found,) = living.board.read().routes
    told = living.metrics.exposition().decode()
    for reason, number in (("no-id", found.no_id), ("unreadable", found.unreadable)):
        line = f'ringfence_unchecked_total{{reason="{reason}",route="orders"}} {float(number)}'
        assert (line in told) == bool(number)
    assert (f'ringfence_stamped_total{{route="orders"}} {float(found.stamped)}' in told) == bool(
        found.stamped
    )
    return found


@pytest.mark.usefixtures("_path")
def test_a_template_that_never_matches_leaves_every_message_unchecked() -> None:
    living = Living(JSON)
    for _ in range(100):
        living.write(ORDER)
    assert counted(living) == RouteCounts("orders", 100, no_id=100)
    status = living.board.read()
    assert status.counts.records_accepted == 100
    (warning,) = [each.warning for each in status.routes]
    assert warning is not None
    assert warning.startswith("Nothing of the route orders is deduplicated: every message passed")


@pytest.mark.usefixtures("_path")
def test_a_message_counts_by_what_its_document_lacks() -> None:
    living = Living(JSON)
    values = (b'{"orderId": 1}', b'{"orderId": 1}', b"{}", b'{"orderId": null}', b"\xef\xbb\xbf{}")
    for value in (*values, b'{"orderId": NaN}', b"text", None, b'{"orderId": {}}', b""):
        living.write(value)
    assert counted(living) == RouteCounts("orders", 10, no_id=4, unreadable=4)
    assert "Messages of the route orders passed unchecked" in str(
        living.board.read().routes[0].warning
    )


@pytest.mark.usefixtures("_path")
def test_of_headers_some_are_missing() -> None:
    living = Living()
    living.send("a", "b", "a", "c")
    living.write(b"plain")
    living.write(b"null", (DUPLICATE_ID, None))
    living.write(b"empty", (DUPLICATE_ID, b""))
    living.write(b"renamed", ("dupl_id", b"1"))
    living.send("c", "d")
    assert counted(living) == RouteCounts("orders", 10, no_id=3)


OFF: Final[Mapping[str, Mapping[str, object]]] = {
    "no size": {"id_cache_size": 0},
    "off": {"strategy": "off"},
}


@pytest.mark.usefixtures("_path")
@pytest.mark.parametrize("how", OFF)
def test_an_address_that_detects_nothing_is_told_apart_and_is_no_warning(how: str) -> None:
    living = Living(addresses={"#": OFF[how]})
    living.send("a", "a")
    living.write(b"plain")
    with structlog.testing.capture_logs() as logs:
        assert counted(living) == RouteCounts("orders", 3, off=3)
    assert living.board.read().routes[0].warning is None
    assert not [line for line in logs if line["event"] == "passed_unchecked"]


@pytest.mark.usefixtures("_path")
def test_a_number_that_the_strategy_reads_is_as_good_as_an_id() -> None:
    living = Living(addresses={"#": {"strategy": "audit"}})
    living.write(b"numbered", ("_PUBLISHER", b"p"), ("_SEQ", b"1"))
    living.write(b"no number", ("_PUBLISHER", b"p"))
    living.send("an id, which audit does not read")
    assert counted(living) == RouteCounts("orders", 3, no_id=2)


@pytest.mark.usefixtures("_path")
def test_what_is_stamped_or_refused_did_not_pass_unchecked() -> None:
    living = Living(replace(JSON, missing_id="stamp"))
    living.write(ORDER)
    living.write(b"text")
    assert counted(living) == RouteCounts("orders", 2, stamped=2)
    living = Living(replace(JSON, missing_id="dead_letter"))
    living.write(ORDER)
    assert counted(living) == RouteCounts("orders", 1)
    headers = dict(living.cluster.records("orders.dlq")[0].headers or ())
    cause = b"the value has nothing at {json:/orderId}, and the route requires an id"
    assert headers[DeadLetter.CAUSE] == cause


@pytest.mark.usefixtures("_path")
def test_one_id_checks_a_whole_group() -> None:
    living = Living()
    for name, identifier in (("checked", "a"), ("unchecked", None)):
        headers: Headers = [] if identifier is None else [(DUPLICATE_ID, identifier.encode())]
        living.write(b"1", *in_group(name, 1, 2), *headers)
        living.write(b"2", *in_group(name, 2, 2))
    assert counted(living) == RouteCounts("orders", 4, no_id=2)


@pytest.mark.usefixtures("_path")
def test_the_second_hop_counts_what_the_first_passes_on() -> None:
    hops = Hops(replace(JSON, scope="address"))
    for partition, value in enumerate((ORDER, b'{"orderId": 1}', b"text")):
        hops.living.write(value, key=b"k", partition=partition)
    hops.turns()
    hops.living.watch.publish("running", ())
    status = hops.living.board.read()
    assert status.routes == (RouteCounts("orders", 3, no_id=1, unreadable=1),)
    assert (status.counts.records_consumed, status.counts.records_accepted) == (3, 3)


@pytest.mark.usefixtures("_path")
def test_an_aborted_transaction_counts_nothing() -> None:
    living = Living(JSON)
    living.faults.at["commit_transaction"] = iter([refused(), refused()])
    for _ in range(3):
        living.write(ORDER)
    loop = living.running()
    for _ in range(20):
        living.cluster.wait(1)
        loop.turn()
    assert living.board.read().counts.transactions_aborted == 2
    assert counted(living) == RouteCounts("orders", 3, no_id=3)


def test_a_route_logs_the_first_cause_of_each_minute() -> None:
    other = RouteSettings(name="other", inputs=("other",), scope="partition")
    living = Living(JSON, others=(other,))
    loop = living.running()
    with structlog.testing.capture_logs() as logs:
        for value, after_s in ((ORDER, 0), (b"text", LOGGED_EVERY_S), (b"text", 0), (b"{", 1)):
            living.cluster.wait(after_s)
            living.write(value)
            living.write(value, topic="other")
            turns(loop, 3)
    told = [line for line in logs if line["event"] == "passed_unchecked"]
    of_orders = [line for line in told if line["route"] == "orders"]
    assert [(line["reason"], line["records"]) for line in of_orders] == [
        ("no-id", 1),
        ("unreadable", 1),
    ]
    assert [line["cause"] for line in of_orders] == [
        "the value has nothing at {json:/orderId}",
        "the value is not JSON from character 0 on",
    ]
    of_other = [line["cause"] for line in told if line["route"] == "other"]
    assert of_other == [f"it has no {DUPLICATE_ID}"] * 2
