"""What was chosen at the first start stays; a later difference ends the start with exit code 5."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from service.config.load import RouteSettings
from service.config.model import Scope
from service.errors import ExitCode
from service.kafka.errors import Recovery, fault_of
from service.kafka.topics import config_topic
from service.metadata.file_routes import InstanceFileRoutes
from service.metadata.layout import RouteTopology, Topology, contradiction, layout_of
from service.metadata.topic import MetadataReader
from service.processor.dynamic_settings import check_layout
from tests.fakes.errors import fenced, plain
from tests.fakes.partition import Record
from tests.support.helpers import ending, some
from tests.support.living import GROUP, ROUTE, Living

TOPIC = config_topic(GROUP)
BY_ADDRESS = RouteSettings(name="orders", inputs=("orders",))
FIRST = Topology({"a": RouteTopology("address", "{key}", "")}, {"in": 12}, 4)


def start(living: Living, now: Topology, beat: Callable[[], None] = lambda: None) -> None:
    clients = living.clients()
    follower = MetadataReader(clients, TOPIC, living.clock)
    try:
        follower.catch_up()
        own = InstanceFileRoutes.of(living.config)
        check_layout(lambda _: now, own, follower, clients, TOPIC, living.clock, beat)
    finally:
        follower.close()


def written(living: Living) -> Topology | None:
    record = living.cluster.records(TOPIC)[-1]
    return layout_of(record.key, record.value)


def test_the_first_start_writes_it_down_and_the_next_one_finds_it() -> None:
    living = Living()
    start(living, FIRST)
    count = len(living.cluster.records(TOPIC))
    start(living, FIRST)
    assert len(living.cluster.records(TOPIC)) == count
    assert written(living) == FIRST
    assert living.faults.passed["close"] == 3, "of two that follow and one that writes"


@pytest.mark.parametrize(
    ("key", "value"), [("scope", "partition"), ("address", "{topic}"), ("id", "{key}")]
)
def test_a_route_keeps_what_says_where_its_ids_are(key: str, value: str) -> None:
    living = Living()
    start(living, FIRST)
    changed = FIRST._replace(routes={"a": FIRST.routes["a"]._replace(**{key: value})})
    with ending(ExitCode.CONTRADICTION, f'with {key} = "'):
        start(living, changed)
    assert written(living) == FIRST


def test_routes_and_inputs_come_and_go() -> None:
    living = Living()
    start(living, FIRST)
    other = Topology({"b": RouteTopology("partition", "{topic}", "")}, {"orders": 3})
    start(living, other)
    start(living, FIRST)
    assert written(living) == FIRST


def test_more_partitions_are_for_the_route_to_allow_and_fewer_are_a_contradiction() -> None:
    more = FIRST._replace(partitions={"in": 13})
    assert contradiction(FIRST, more) is None
    assert "now it has 12" in str(contradiction(more, FIRST))


def test_how_many_partitions_decide_by_address_stays() -> None:
    assert "set 4" in str(contradiction(FIRST, FIRST._replace(by_address=5)))
    assert contradiction(FIRST._replace(by_address=0), FIRST) is None


def test_who_is_fenced_while_writing_looks_again() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([fenced()])
    start(living, FIRST)
    assert written(living) == FIRST


def test_what_another_writes_meanwhile_is_not_contradicted() -> None:
    living, others = Living(), [Record(*FIRST.record, None, 1)]

    def other() -> None:
        while others:
            living.cluster.write(TOPIC, 0, others.pop())

    with ending(ExitCode.CONTRADICTION, "now it is 5"):
        start(living, FIRST._replace(by_address=5), other)
    assert written(living) == FIRST


def test_however_often_it_is_written_nobody_takes_it_for_a_loop_that_hangs() -> None:
    living = Living()
    living.faults.at["commit_transaction"] = iter([fenced() for _ in range(3)])
    commits: list[int] = []
    start(living, FIRST, lambda: commits.append(living.faults.passed["commit_transaction"]))
    assert {0, 1, 2, 3, 4} == set(commits)


def test_who_is_fenced_by_the_others_every_time_has_no_rival_of_its_own_name() -> None:
    living = Living()
    living.faults.at["begin_transaction"] = iter([fenced() for _ in range(9)])
    begun_s = living.clock.monotonic_s()
    with pytest.raises(KafkaException) as caught:
        start(living, FIRST)
    assert living.faults.passed["begin_transaction"] == 5
    assert 0 <= living.clock.monotonic_s() - begun_s - 2 < 0.1, "its pauses grow"
    fault = fault_of(caught.value.args[0])
    assert (fault.fenced, fault.remedy) == (False, Recovery.RETRY)


def test_a_refusal_by_the_broker_is_raised() -> None:
    living = Living()
    refusal = plain(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right to write")
    living.faults.at["commit_transaction"] = iter([refusal] * 9)
    with pytest.raises(KafkaException):
        start(living, FIRST)


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b'{"routes":{"a":{}},"partitions":{}}'])
def test_what_is_no_layout_tells_none(value: bytes) -> None:
    assert layout_of(b'["layout"]', value) is None
    assert layout_of(None, FIRST.record.value) is None


@pytest.mark.parametrize(
    ("scopes", "partitions", "by_address"),
    [
        (["address"], {}, 12),
        (["partition"], {"orders": 1}, 0),
        (["partition", "address"], {"orders": 1}, 12),
    ],
)
def test_a_loop_writes_it_before_it_reads_anything(
    scopes: list[Scope], partitions: Mapping[str, int], by_address: int
) -> None:
    living = Living()
    names = zip(scopes, ("orders", "more"), strict=False)
    routes = [RouteSettings(name=name, inputs=(name,), scope=scope) for scope, name in names]
    living.config = replace(living.config, routes=tuple(routes))
    del living.cluster.logs[TOPIC]
    living.loop()
    found = some(written(living))
    assert found.routes["orders"] == RouteTopology(scopes[0], "{topic}", "")
    assert (found.partitions, found.by_address) == (partitions, by_address)


def test_another_number_of_partitions_than_the_topic_has_is_a_contradiction() -> None:
    living = Living(BY_ADDRESS, by_address_partitions=4)
    living.cluster.create_topic("g.by-address", 5)
    with ending(ExitCode.CONTRADICTION, "write 5"):
        living.loop()


def test_a_loop_whose_route_changed_its_scope_does_not_start() -> None:
    living = Living(ROUTE)
    living.loop().close()
    changed = replace(ROUTE, scope="address")
    living.config = replace(living.config, routes=(changed,))
    with ending(ExitCode.CONTRADICTION, "scope"):
        living.loop()


def test_what_else_is_in_the_config_topic_is_left_alone() -> None:
    living = Living()
    living.cluster.write(TOPIC, 0, Record(b'["later-version"]', b"{}", None, 1))
    start(living, FIRST)
    assert written(living) == FIRST
