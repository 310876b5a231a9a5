"""Routes that make ids of several fields: what is one message, and what an older route keeps."""

from dataclasses import replace

import pytest

from service.dedup.route import InputRoute
from service.kafka.topics import config_topic
from service.main.check import report_in_effect
from service.main.template_warnings import shared_addresses
from service.metadata.layout import RouteTopology, Topology
from tests.fakes.partition import Record
from tests.fakes.rights import FakeRights
from tests.support.living import GROUP, ROUTE, Living

FIRST, SECOND = b'{"doc": "doc-7", "line": "12"}', b'{"doc": "doc-71", "line": "2"}'
SEVERAL = "{json:/doc}{json:/line}"
DEBEZIUM = "{debezium-postgresql}"


def started_before(living: Living, identifier: str) -> None:
    """Leave the choices that a version without escapes wrote at the first start."""
    routes = {"orders": RouteTopology("partition", "{topic}", identifier)}
    key, value = Topology(routes, {"orders": 1}, 0).record
    living.cluster.write(config_topic(GROUP), 0, Record(key, value, None, 1))


def of(identifier: str) -> Living:
    return Living(replace(ROUTE, id=identifier))


def accepted(living: Living, *values: bytes) -> list[str]:
    for value in values:
        living.write(value, key=b'{"order_id":1}')
    loop = living.running()
    loop.turn()
    found = living.values("orders.unique")
    loop.close()
    return found


def test_messages_that_differ_in_a_field_are_both_accepted() -> None:
    assert len(accepted(of(SEVERAL), FIRST, SECOND, FIRST)) == 2


def test_a_route_that_was_started_without_escapes_goes_on_so() -> None:
    living = of(SEVERAL)
    started_before(living, SEVERAL)
    assert accepted(living, FIRST, SECOND) == [FIRST.decode()]
    assert accepted(of("{plain}" + SEVERAL), FIRST, SECOND) == [FIRST.decode()]


def test_check_warns_of_inputs_that_can_share_an_address() -> None:
    inputs = ("eu", "eu.a", "us")
    for address, warned in (("{topic}.{header:t}", 1), ("{header:t}.{topic}", 0), ("{topic}", 0)):
        settings = replace(ROUTE, inputs=inputs, address=address)
        told = list(shared_addresses({name: InputRoute.bind(settings, name) for name in inputs}))
        assert len(told) == warned
        assert all('the inputs "eu" and "eu.a" of the route' in each for each in told)


@pytest.mark.parametrize("managed_by", ["rest", "file"])
def test_check_says_so_and_what_to_do(managed_by: str) -> None:
    living = Living(replace(ROUTE, id=SEVERAL), managed_by=managed_by)
    rights = FakeRights(living.cluster)

    def warnings(identifier: str) -> list[str]:
        file = replace(living.config, routes=(replace(ROUTE, id=identifier),))
        report = report_in_effect(file, living.clients("command"), rights, living.clock)
        assert report.problems == ()
        return [each for each in report.warnings if "first started" in each]

    assert warnings(SEVERAL) == warnings("{escaped}" + SEVERAL) == []
    started_before(living, SEVERAL)
    (told,) = warnings(SEVERAL)
    assert told == (
        'the id of the route "orders" is {plain}{json:/doc}{json:/line}, as when it was first '
        "started: messages that differ in a field may have one id, and be removed; give the route "
        "another name, which makes it a new one that remembers nothing, or write it as it is here "
        "to keep it"
    )
    assert warnings("{plain}" + SEVERAL) == []
