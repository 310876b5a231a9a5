"""The broker tool keeps its promises: what tests and demo build on is itself tested."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.waiting import eventually
from tools.broker import detached
from tools.broker.cluster import Broker
from tools.broker.config import Ports, free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.errors import BrokerError
from tools.broker.node import Machine, Node, is_running, open_node

pytestmark = pytest.mark.broker

REPOSITORY = Path(__file__).parents[2]
SMALL = Machine(heap_mb=512, short_lived=True)


def cluster_id(broker: Broker) -> str:
    admin = AdminClient(dict(broker.client_properties))
    return str(admin.list_topics(timeout=10).cluster_id)


def test_a_topic_that_nobody_made_is_not_made_by_writing(
    broker: Broker, topic_name: Callable[[str], str]
) -> None:
    if not broker.controllable:
        pytest.skip("a broker of one's own may be set up to make topics")
    codes: list[int] = []

    def tell(error: KafkaError | None, _: object) -> None:
        codes.append(0 if error is None else error.code())

    impatient = Producer({**broker.client_properties, "message.timeout.ms": 2000, "log_level": 0})
    impatient.produce(topic_name("typo"), b"lost", on_delivery=tell)
    impatient.flush(60)
    (code,) = codes
    assert code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MSG_TIMED_OUT}


def test_a_suspended_broker_answers_nothing_until_it_is_resumed_or_stopped(
    own_broker: Broker,
) -> None:
    admin = AdminClient({**own_broker.client_properties, "log_level": 0})
    eventually(lambda: admin.list_topics(timeout=20).brokers)  # fenced until it is heard of
    own_broker.suspend()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    own_broker.resume()
    eventually(lambda: admin.list_topics(timeout=20).brokers)  # fenced until it is heard of
    own_broker.suspend()
    own_broker.stop()
    assert not is_running(own_broker.log_path.parent)


@pytest.mark.usefixtures("embedded_kind")
def test_two_brokers_at_once_are_strangers_and_one_outlives_the_thread_that_started_it(
    broker: Broker, tmp_path: Path
) -> None:
    other = EmbeddedBroker(tmp_path / "broker", machine=SMALL)
    thread = threading.Thread(target=other.start)
    thread.start()
    thread.join()
    try:
        assert broker.bootstrap_servers != other.bootstrap_servers
        assert cluster_id(broker) != cluster_id(other)
    finally:
        other.stop()
    with pytest.raises(BrokerError, match="does not run, so it cannot be killed"):
        other.kill()


def test_a_folder_serves_one_broker_at_a_time(broker: Broker) -> None:
    if not broker.controllable:
        pytest.skip("a broker of one's own has no folder here")
    with pytest.raises(BrokerError, match="already runs"):
        EmbeddedBroker(broker.log_path.parent).start()
    assert cluster_id(broker)


@pytest.mark.usefixtures("embedded_kind")
def test_a_broker_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broker = EmbeddedBroker(
        tmp_path, machine=SMALL, properties={"authorizer.class.name": "no.such.Class"}
    )
    with pytest.raises(BrokerError, match=r"(?s)look at its log.*no\.such\.Class"):
        broker.start()
    assert not is_running(tmp_path)


@pytest.mark.usefixtures("embedded_kind")
def test_a_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal\n"
        "from tools.broker.embedded import EmbeddedBroker\n"
        "from tools.broker.node import Machine\n"
        f"EmbeddedBroker(pathlib.Path({str(tmp_path)!r}), machine={SMALL}).start()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", program], check=False, cwd=REPOSITORY, timeout=150)
    assert died.returncode == -signal.SIGKILL
    eventually(lambda: not is_running(tmp_path))


@pytest.mark.usefixtures("embedded_kind")
def test_up_outlives_its_command_and_down_keeps_the_data(tmp_path: Path) -> None:
    def command(*words: str) -> tuple[int, str]:
        line = [sys.executable, "-m", "ringfence_main.entry", "broker", *words]
        line += ["--folder", str(tmp_path)]
        done = subprocess.run(
            line, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=150
        )
        return done.returncode, done.stdout.strip()

    try:
        status, address = command("up")
        assert status == 0
        assert command("up") == (0, address)
        assert command("status") == (0, address)
        assert command("topic", "kept") == (0, "created kept with 1 partition")
        assert command("topic", "kept")[0] == 3
        assert command("down") == (0, "stopped")
        assert command("status") == (1, "not running")
        assert command("down") == (0, "not running")
        assert command("topic", "late")[0] == 3
        assert command("up") == (0, address)
        assert "kept" in AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics
    finally:
        detached.down(tmp_path)


@pytest.mark.usefixtures("embedded_kind")
def test_up_takes_other_ports_if_another_broker_took_one_after_it_was_chosen(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(broker.bootstrap_servers.rpartition(":")[2])
    chosen = Node(tmp_path, Ports(client=taken, controller=free_port(taken=taken)))
    nodes = iter([chosen, open_node(tmp_path / "other")])
    monkeypatch.setattr(detached, "open_node", lambda *_: next(nodes)._replace(folder=tmp_path))
    try:
        address = detached.up(tmp_path)
        assert address != broker.bootstrap_servers
        assert detached.status(tmp_path) == address
    finally:
        detached.down(tmp_path)


def test_a_secured_broker_refuses_who_does_not_say_its_name(secured_broker: Broker) -> None:
    stranger = AdminClient({"bootstrap.servers": secured_broker.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=3)
