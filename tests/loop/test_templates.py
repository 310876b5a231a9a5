"""Routes that make ids of several fields: what is one message, and what an older route keeps."""

from dataclasses import replace

import pytest

from ringfence_main.check import report_in_effect
from ringfence_main.template_warnings import shared_addresses
from ringfence_service.dedup.route import InputRoute
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.layout import RouteTopology, Topology
from tests.fakes.partition import Record
from tests.fakes.rights import FakeRights
from tests.support.helpers import rows
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


@rows(
    ("addresses", "is_warned"),
    {
        "the field last": ({"eu": "{topic}.{header:t}", "eu.a": "{topic}.{header:t}"}, True),
        "the field first": ({"a": "{header:t}.{topic}", "eu.a": "{header:t}.{topic}"}, True),
        "between": ({"eu": "{topic}.{header:t}.x", "eu.a": "{topic}.{header:t}.x"}, True),
        "a field and the default": ({"eu": "{topic}.{header:t}", "eu.a": "{topic}"}, True),
        "a field alone": ({"eu": "{topic}.{header:t}", "us": "{key}"}, True),
        "another beginning": ({"eu": "{topic}.{header:t}", "us": "{topic}.{header:t}"}, False),
        "another end": ({"eu": "{header:t}.{topic}", "eu.a": "{header:t}.{topic}"}, False),
        "no topic has a slash": ({"eu": "{topic}/{key}", "eu.a": "{topic}/{key}"}, False),
        "nor at the end": ({"a": "{key}/{topic}", "eu.a": "{key}/{topic}"}, False),
        "topics": ({"eu": "{topic}", "eu.a": "{topic}"}, False),
        "one address on purpose": ({"eu": "all", "us": "all"}, False),
        "one field on purpose": ({"eu": "{key}", "us": "{key}"}, False),
    },
)
def test_check_warns_of_inputs_that_can_share_an_address(
    addresses: dict[str, str], *, is_warned: bool
) -> None:
    found = list(
        shared_addresses(
            {
                name: InputRoute.bind(replace(ROUTE, inputs=(name,), address=address), name)
                for name, address in addresses.items()
            }
        )
    )
    assert len(found) == is_warned
    assert all(f'"{name}"' in each for each in found for name in addresses)


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
