"""Whatever the network does around the end of a transaction, nothing is torn or crossed."""

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.broker.conftest import Network, NewWorld
from tests.broker.proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Trouble,
    What,
)
from tests.broker.service import Service
from tests.broker.world import PLAIN, Manner, World
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

LONGER_THAN_A_TRANSACTION_S = 5.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def world(network: Network, new_world: NewWorld, request: pytest.FixtureRequest) -> World:
    """The service comes through the proxy, who judges it does not."""
    broker, proxy = network
    return new_world(
        broker.client_properties,
        count=2000,
        service_client=proxy.client_properties,
        manner=getattr(request, "param", PLAIN),
    )


@pytest.fixture
def service(world: World) -> Service:
    """One that has decided something, and of which the next transaction is that of records."""
    own = world.started()
    world.send(400)
    world.wait_decided()
    eventually(world.is_announced, own)
    return own


@pytest.mark.row(15)
@pytest.mark.parametrize(
    "what", [What.CUT, What.CUT_ANSWER, What.LATE], ids=lambda what: what.name.lower()
)
def test_trouble_around_the_end_of_a_transaction_tears_none(
    world: World, service: Service, network: Network, what: What
) -> None:
    proxy = network.proxy
    proxy.provoke(Trouble(END_TXN, what, times=3, late_s=LONGER_THAN_A_TRANSACTION_S))
    world.send(600)
    world.wait_decided()
    world.glimpse()
    assert proxy.struck > 0, "no transaction has met with trouble"
    world.conclude(service)


@pytest.mark.row(15)
@pytest.mark.row(29)
@pytest.mark.parametrize("world", [Manner(session_ms=3_000)], ids=["heartbeats"], indirect=True)
def test_an_abort_that_reaches_the_broker_in_a_later_transaction_loses_nothing(
    world: World, service: Service, network: Network
) -> None:
    proxy = network.proxy
    # While the offsets wait the group gets another generation, so it refuses them.
    proxy.before(ADD_OFFSETS_TO_TXN, lambda: share_with_a_guest(world))
    proxy.provoke(Trouble(END_TXN, What.OUTLIVES, times=1))
    world.send(200)
    world.wait_decided()
    assert proxy.struck == 1, "no transaction has ended"
    assert "transaction_aborted" in service.log.read_text(), "none was aborted"
    service.wait_ready()
    proxy.before(ADD_OFFSETS_TO_TXN, proxy.deliver)
    world.send(200)
    world.wait_decided()
    assert proxy.delivered == 1, "the late copy was never delivered"
    world.conclude(service)


@pytest.mark.row(15)
@pytest.mark.row(29)
def test_a_commit_that_reaches_the_broker_in_a_transaction_that_is_killed_doubles_nothing(
    world: World, service: Service, network: Network
) -> None:
    proxy = network.proxy
    proxy.provoke(Trouble(END_TXN, What.OUTLIVES, times=1))
    world.send(200)
    world.wait_decided()
    assert proxy.struck == 1, "no transaction has ended"

    def deliver_and_kill() -> None:
        proxy.deliver()
        for worker in service.workers():
            os.kill(worker, signal.SIGKILL)
        service.signal(signal.SIGKILL)

    proxy.before(ADD_OFFSETS_TO_TXN, deliver_and_kill)
    world.send(200)
    service.wait()
    assert proxy.delivered == 1, "the late copy was never delivered"
    service.start()
    world.conclude(service)


@pytest.mark.long
@pytest.mark.row(15)
@pytest.mark.row(29)
def test_requests_of_every_kind_that_arrive_in_later_transactions_change_nothing(
    world: World, service: Service, network: Network
) -> None:
    proxy = network.proxy
    for request in (ADD_PARTITIONS_TO_TXN, PRODUCE, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN):
        proxy.calm()
        proxy.provoke(Trouble(request, What.OUTLIVES, times=1))
        world.send(100)
        world.wait_decided()
        assert proxy.struck == 1, f"there was no request {request}"
        proxy.before(END_TXN, proxy.deliver)
        world.send(100)
        world.wait_decided()
        assert proxy.delivered == 1, f"the late copy of request {request} was never delivered"
    service.stop()
    service.start()  # from the offsets that are committed
    world.conclude(service)


@pytest.mark.row(15)
def test_a_network_that_is_cut_and_slow_and_silent_in_turn_is_survived(
    world: World, service: Service, network: Network
) -> None:
    proxy = network.proxy
    for _ in range(3):
        world.send(300)
        proxy.cut()
        time.sleep(0.3)  # noqa: TID251 - the fault lasts
        proxy.slow_s = 0.05
        time.sleep(0.5)  # noqa: TID251 - the fault lasts
        proxy.slow_s = 0.0
    proxy.silence()
    time.sleep(LONGER_THAN_A_TRANSACTION_S)  # noqa: TID251 - the fault lasts
    proxy.resume()
    world.conclude(service)


@pytest.mark.row(15)
def test_a_broker_that_stands_still_for_longer_than_a_transaction_loses_nothing(
    own_broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(own_broker.client_properties, count=2000)
    world.send()
    service = world.started()
    world.wait_decided(400)
    own_broker.suspend()
    time.sleep(LONGER_THAN_A_TRANSACTION_S)  # noqa: TID251 - the fault lasts
    own_broker.resume()
    world.conclude(service)


@pytest.mark.row(16)
def test_a_broker_that_is_away_for_longer_than_a_session_is_waited_for_without_haste(
    own_broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(own_broker.client_properties, count=2000, manner=Manner(session_ms=3_000))
    world.send(1500)
    service = world.started()
    world.wait_decided(400)
    own_broker.kill()
    service.wait_complaint("the broker")
    before_s = cpu_s(service)
    time.sleep(LONGER_THAN_A_TRANSACTION_S)  # noqa: TID251 - the fault lasts
    spent_s = cpu_s(service) - before_s
    assert not service.ended, service.tail()
    assert spent_s < LONGER_THAN_A_TRANSACTION_S / 2, f"it worked for {spent_s} s while waiting"
    own_broker.restart()
    world.conclude(service)
    assert "worker_failed" not in service.log.read_text(), "a process was given up"


@pytest.mark.row(14)
def test_a_broker_that_is_restarted_in_order_interrupts_and_changes_nothing(
    own_broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(own_broker.client_properties)
    world.send()
    service = world.started()
    world.wait_decided(400)
    own_broker.restart()
    world.wait_decided()
    # What is committed is in the store a moment later.
    eventually(lambda: applied(service) >= world.sent, service)
    service.kill()
    world.verify()
    world.verify_store()


def share_with_a_guest(world: World) -> None:
    """Another member joins the group, and leaves once it has made another generation."""
    admin = AdminClient(dict(world.client))
    guest = Consumer(
        {
            **world.client,
            "group.id": world.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )

    def is_shared() -> bool:
        guest.poll(0)
        told = admin.describe_consumer_groups([world.group])[world.group].result(30)
        return len(told.members) == 2 and told.state is ConsumerGroupState.STABLE

    with closing(guest):
        guest.subscribe([world.input])
        eventually(is_shared)


def applied(service: Service) -> int:
    """How many records of its partitions a service has decided and remembered."""
    return sum(each["committed_offset"] or 0 for each in service.partitions())


def cpu_s(service: Service) -> float:
    """The processor's time that a process has had."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
