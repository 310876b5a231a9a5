"""Whatever the network does around the end of a transaction, nothing is torn or crossed."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.broker.proxy import END_TXN, Proxy, Trouble, What, proxied
from tests.broker.service import Service, eventually
from tests.broker.world import World
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

LONGER_THAN_A_TRANSACTION_S = 4.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def network(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Broker, Proxy]]:
    broker, proxy = proxied(tmp_path_factory.mktemp("proxied"))
    with broker, proxy:
        yield broker, proxy


@pytest.fixture
def world(
    network: tuple[Broker, Proxy], tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[World]:
    """The service comes through the proxy, who judges it does not."""
    broker, proxy = network
    through = {"bootstrap.servers": f"127.0.0.1:{proxy.port}"}
    client, group = broker.client_properties, topic_name("network")
    with World(client, tmp_path, group, count=2000, service_client=through) as own:
        own.create()
        yield own
    proxy.calm()
    proxy.resume()
    proxy.slow_s = 0.0


@pytest.mark.row(15)
@pytest.mark.parametrize(
    "what", [What.CUT, What.CUT_ANSWER, What.LATE], ids=lambda what: what.name.lower()
)
def test_trouble_around_the_end_of_a_transaction_tears_none(
    world: World, network: tuple[Broker, Proxy], what: What
) -> None:
    _, proxy = network
    world.send(800)
    service = world.service(free_port(0))
    service.start()
    world.wait_decided(200)
    proxy.provoke(Trouble(END_TXN, what, times=3, late_s=LONGER_THAN_A_TRANSACTION_S))
    world.send(600)
    world.wait_decided()
    world.glimpse()
    assert proxy.struck > 0, "no transaction has met with trouble"
    world.send()
    world.wait_decided()
    service.wait_ready()
    service.stop()
    world.verify()
    world.verify_store()


@pytest.mark.row(15)
def test_a_network_that_is_cut_and_slow_and_silent_in_turn_is_survived(
    world: World, network: tuple[Broker, Proxy]
) -> None:
    _, proxy = network
    service = world.service(free_port(0))
    service.start()
    world.send(400)
    for _ in range(3):
        world.send(300)
        proxy.cut()
        time.sleep(0.3)
        proxy.slow_s = 0.05
        time.sleep(0.5)
        proxy.slow_s = 0.0
    proxy.silence()
    time.sleep(LONGER_THAN_A_TRANSACTION_S)
    proxy.resume()
    world.send()
    world.wait_decided()
    service.wait_ready()
    service.stop()
    world.verify()
    world.verify_store()


@pytest.mark.row(15)
def test_a_broker_that_stands_still_for_longer_than_a_transaction_loses_nothing(
    own_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    with World(own_broker.client_properties, tmp_path, topic_name("pause"), count=2000) as world:
        world.create()
        world.send()
        service = world.service(free_port(0))
        service.start()
        world.wait_decided(400)
        own_broker.suspend()
        time.sleep(2 * LONGER_THAN_A_TRANSACTION_S)
        own_broker.resume()
        world.wait_decided()
        service.wait_ready()
        service.stop()
        world.verify()
        world.verify_store()


@pytest.mark.row(16)
def test_a_broker_that_is_long_away_is_waited_for_without_haste(
    own_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    with World(own_broker.client_properties, tmp_path, topic_name("away"), count=2000) as world:
        world.create()
        world.send(1500)
        service = world.service(free_port(0))
        service.start()
        world.wait_decided(400)
        own_broker.kill()
        service.wait_complaint("the broker")
        before_s = cpu_s(service)
        time.sleep(2 * LONGER_THAN_A_TRANSACTION_S)
        spent_s = cpu_s(service) - before_s
        assert not service.ended, service.tail()
        assert spent_s < LONGER_THAN_A_TRANSACTION_S, f"it worked for {spent_s} s while waiting"
        own_broker.restart()
        world.send()
        world.wait_decided()
        service.wait_ready()
        service.stop()
        world.verify()
        world.verify_store()


@pytest.mark.row(14)
def test_a_broker_that_is_restarted_in_order_interrupts_and_changes_nothing(
    own_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    with World(own_broker.client_properties, tmp_path, topic_name("restart")) as world:
        world.create()
        world.send()
        service = world.service(free_port(0))
        service.start()
        world.wait_decided(400)
        own_broker.restart()
        world.wait_decided()
        # What is committed is in the store a moment later.
        eventually(lambda: applied(service) >= world.sent, 60, service)
        service.signal(signal.SIGKILL)
        service.wait()
        world.verify()
        world.verify_store()


def applied(service: Service) -> int:
    """How many records of its partitions a service has decided and remembered."""
    return sum(each["committed_offset"] or 0 for each in service.partitions())


def cpu_s(service: Service) -> float:
    """The processor's time that a process has had."""
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
