"""A bridge loses nothing, and nothing it sends twice comes out twice behind a Ringfence."""

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions  # where the types are exported

from ringfence_client.headers import DeadLetter
from tests.broker.raw import send_raw
from tests.broker.service import IN_TIME_S, ringfence
from tests.broker.topics import done
from tests.broker.two_clusters import PARTITIONS, TwoClusters
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def clusters(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[TwoClusters]:
    """One cluster that is both: what crosses changes its name."""
    client = broker.client_properties
    with TwoClusters(client, client, tmp_path, topic_name("near")) as own:
        yield own


@pytest.mark.parametrize(
    ("count", "kills"), [(6_000, 3), pytest.param(200_000, 10, marks=pytest.mark.long)]
)
def test_kills_and_two_restarts_of_the_target_lose_and_double_nothing(
    broker: Broker,
    own_broker: Broker,
    tmp_path: Path,
    topic_name: Callable[[str], str],
    count: int,
    kills: int,
) -> None:
    chance, share = random.Random(1), count // kills
    source, target = broker.client_properties, own_broker.client_properties
    with TwoClusters(source, target, tmp_path, topic_name("near")) as world:
        world.create()
        service, bridge = world.service(), world.bridge()
        service.start()
        for turn in range(kills):
            world.send(range(turn * share, (turn + 1) * share))
            wanted = world.arrived() + chance.randrange(1, share)
            bridge.start()
            world.wait_arrived(wanted, bridge)
            if turn in (1, kills - 1):
                own_broker.kill()
                own_broker.restart()
                world.wait_forwarded(bridge)  # by the bridge that saw it die
            bridge.kill()
        bridge.start()
        bridge.wait_ready(PARTITIONS)
        world.wait_forwarded(bridge)
        while world.arrived() == count:  # no kill came between a record and its offset
            world.send(range(count, count + share))
            count += share
            world.kill_ahead(bridge)
            bridge.start()
            world.wait_forwarded(bridge)
        world.wait_decided(service)
        bridge.stop()
        service.stop()
        outputs = world.read(f"{world.initializer}.unique")
        for number, wanted_records in world.stamped():
            assert outputs[number] == wanted_records
        copies = world.arrived() - count
        assert len(world.seen(f"{world.initializer}.dlq")) == copies


def produce(clusters: TwoClusters, *values: bytes | None, key: bytes | None = b"k") -> None:
    producer = Producer({**clusters.source, "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce(clusters.topic, value, key, 0)
    assert producer.flush(20) == 0


def test_what_the_target_refuses_is_a_dead_letter_and_the_rest_goes_on(
    clusters: TwoClusters,
) -> None:
    clusters.create(max_message_bytes="2000")
    send_raw(clusters.source, clusters.topic, b"\xff")
    # Compressed, it would be too small to tell: only the broker knows that it is too large.
    large = random.Random(1).randbytes(3000)
    produce(clusters, b"1", large, b"2", large, b"3")
    bridge = clusters.bridge(target='"compression.type" = "lz4"')
    bridge.start()
    eventually(lambda: clusters.arrived() >= 3, bridge)
    clusters.wait_offsets(6, bridge)
    bridge.stop()
    arrived = clusters.read(clusters.initializer)
    assert list(dict.fromkeys(each.value for each in arrived[0])) == [b"1", b"2", b"3"]
    letters = clusters.read(f"{clusters.group}.dead-letters", 1)[0]
    told = Counter((each.value, dict(each.headers)[DeadLetter.REASON]) for each in letters)
    assert set(told) == {(large, b"too-large"), (b"raw", b"unreadable-headers")}
    places = {dict(each.headers)[DeadLetter.OFFSET] for each in letters if each.value == large}
    assert len(places) == 2


def test_of_records_that_share_a_request_only_the_guilty_one_is_a_dead_letter(
    clusters: TwoClusters,
) -> None:
    clusters.create(cleanup_policy="compact")
    # Enough for several requests: those that follow must not arrive before what is sent again.
    values = [b"%0500d" % number for number in range(3000)]
    produce(clusters, *values[:100])
    produce(clusters, b"no key", key=None)
    produce(clusters, *values[100:])
    bridge = clusters.started()
    clusters.wait_offsets(3001, bridge)
    bridge.stop()
    arrived = [each.value for each in clusters.read(clusters.initializer)[0]]
    assert list(dict.fromkeys(arrived)) == values
    letters = clusters.read(f"{clusters.group}.dead-letters", 1)[0]  # perhaps again
    told = {(each.value, dict(each.headers)[DeadLetter.REASON]) for each in letters}
    assert told == {(b"no key", b"refused")}


def test_sigterm_under_load_ends_in_time_and_loses_nothing(clusters: TwoClusters) -> None:
    clusters.create()
    bridge = clusters.bridge(session_ms=30_000)
    clusters.send(range(10_000))
    bridge.start()
    clusters.wait_arrived(2_000, bridge)
    bridge.stop(IN_TIME_S)
    bridge.start()
    bridge.wait_ready(PARTITIONS)
    clusters.wait_forwarded(bridge)
    bridge.stop()
    assert clusters.read(clusters.initializer) == dict(clusters.stamped()), "something came twice"


def test_two_bridges_share_the_partitions_and_hand_them_over(clusters: TwoClusters) -> None:
    clusters.create()
    first, second = clusters.bridge(), clusters.bridge()
    first.start()
    first.wait_ready(PARTITIONS)
    clusters.send(range(5_000))
    second.start()
    first.wait_ready(2)
    second.wait_ready(2)
    clusters.send(range(5_000, 10_000))
    first.signal(signal.SIGKILL)
    second.wait_ready(PARTITIONS)
    clusters.wait_forwarded(second)
    second.stop()
    clusters.verify_arrived()


def test_a_source_that_is_killed_interrupts_and_changes_nothing(
    broker: Broker, own_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    source, target = own_broker.client_properties, broker.client_properties
    with TwoClusters(source, target, tmp_path, topic_name("near")) as clusters:
        clusters.create()
        clusters.send(range(10_000))
        bridge = clusters.started()
        clusters.wait_arrived(2_000, bridge)
        own_broker.kill()
        bridge.wait_complaint("the source's broker")
        own_broker.restart()
        clusters.send(range(10_000, 12_000))
        clusters.wait_forwarded(bridge)
        bridge.wait_ready()
        bridge.stop()
        clusters.verify_arrived()


def test_a_bridge_that_wakes_after_the_takeover_goes_on_and_passes_nothing_over(
    clusters: TwoClusters,
) -> None:
    clusters.create()
    sleeper, heir = clusters.bridge(), clusters.bridge()
    sleeper.start()
    sleeper.wait_ready(PARTITIONS)
    clusters.send(range(10_000))
    clusters.wait_arrived(1_000, sleeper)
    sleeper.signal(signal.SIGSTOP)
    sleeper.wait_until_stopped()
    heir.start()
    clusters.wait_forwarded(heir)
    sleeper.signal(signal.SIGCONT)
    clusters.send(range(10_000, 14_000))
    sleeper.wait_ready(2)
    heir.wait_ready(2)
    clusters.wait_forwarded(sleeper)
    sleeper.stop()
    heir.stop()
    clusters.verify_arrived()


def check(clusters: TwoClusters) -> tuple[int, str]:
    """What the command says of the configuration of a bridge."""
    config = clusters.folder / "bridge.toml"
    config.write_text(clusters.text(), encoding="utf-8")
    ended = ringfence("check", "--config", str(config))
    return ended.returncode, ended.stdout + ended.stderr


def test_check_tells_what_the_clusters_lack_until_the_bridge_can_run(clusters: TwoClusters) -> None:
    status, told = check(clusters)
    assert status == 1
    assert f"the source topic {clusters.topic} does not exist" in told
    clusters.create(PARTITIONS - 1)
    status, told = check(clusters)
    assert status == 1
    assert "has 3 partitions" in told
    admin = AdminClient(dict(clusters.target))
    done(
        lambda: admin.create_partitions([NewPartitions(clusters.initializer, 4)])[
            clusters.initializer
        ]
    )
    eventually(lambda: check(clusters)[0] == 0)
    assert f"bridged: {clusters.topic} → {clusters.initializer}" in check(clusters)[1]
