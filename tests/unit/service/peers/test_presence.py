"""Presence: an instance stands on the metadata topic while it is there, and no longer."""

import asyncio
import io
import socket
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.instances import InstanceRegistry, Registration, removal_of
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.peers import presence as module
from ringfence_service.peers.client import LEFT_ALONE_S, PeerClient
from ringfence_service.peers.presence import GONE_S, Presence
from ringfence_service.peers.protocol import StatusRequest
from ringfence_service.queries.status import ServicePhase
from tests.api.fake_service import Clock
from tests.fakes.logs import logging_to
from tests.support.waiting import eventually
from tests.unit.service.peers.scene import announced, peers_of

MINE = announced("0", 1)


class Topic:
    """The metadata topic, of which everything is read at once."""

    def __init__(self) -> None:
        self.settings = MetadataImage()
        self.written: list[MetadataRecord] = []
        self.failures = 0
        self.looks = 0

    def write(self, change: Callable[[MetadataImage], MetadataRecord]) -> int:
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._FENCED))
        record = change(self.settings)
        self.put(record)
        self.written.append(record)
        return len(self.written)

    def put(self, record: MetadataRecord) -> None:
        self.settings.take(0, record.key, record.value)

    @property
    def known(self) -> tuple[Registration, ...]:
        return self.settings.instances.all


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setattr(module, "_LOOK_S", 0.01)
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)
    return Topic()


def presence_of(
    topic: Topic, phases: list[ServicePhase], peers: PeerClient | None = None
) -> Presence:
    def phase() -> ServicePhase:
        topic.looks += 1
        return phases[-1]

    found = Presence(
        lambda: MINE,
        lambda: topic.known,
        topic.write,
        peers or peers_of([]),
        phase=phase,
    )
    found.start()
    return found


def looked_again(topic: Topic) -> None:
    """Wait until it has seen all that is so now."""
    before = topic.looks
    eventually(lambda: topic.looks > before + 2)


def test_an_instance_is_announced_once_it_has_joined_and_until_it_leaves(topic: Topic) -> None:
    phases: list[ServicePhase] = ["starting"]
    presence = presence_of(topic, phases)
    looked_again(topic)
    assert topic.known == ()
    phases.append("waiting")
    eventually(lambda: topic.known == (MINE,))
    looked_again(topic)
    assert len(topic.written) == 1, "what stands there already is not written again"
    presence.stop()
    assert topic.known == ()


def test_an_instance_that_is_stopping_is_removed_before_it_has_ended(topic: Topic) -> None:
    phases: list[ServicePhase] = ["running"]
    presence = presence_of(topic, phases)
    eventually(lambda: topic.known == (MINE,))
    phases.append("stopping")
    eventually(lambda: topic.known == ())
    presence.stop()


def test_one_that_never_joined_takes_nothing_away(topic: Topic) -> None:
    topic.put(MINE._replace(started_at_ms=7).record)
    presence_of(topic, ["starting"]).stop()
    assert len(topic.known) == 1


def test_another_of_our_name_that_came_after_us_stays(topic: Topic) -> None:
    phases: list[ServicePhase] = ["running"]
    presence = presence_of(topic, phases)
    eventually(lambda: topic.known == (MINE,))
    successor = MINE._replace(started_at_ms=7)
    phases.append("stopping")
    topic.put(successor.record)
    presence.stop()
    assert topic.known in {(successor,), ()}


def test_what_somebody_took_away_is_written_again(topic: Topic) -> None:
    presence = presence_of(topic, ["running"])
    eventually(lambda: topic.known == (MINE,))
    topic.put(removal_of("0"))
    eventually(lambda: topic.known == (MINE,))
    presence.stop()


def test_a_writer_that_was_fenced_tries_again(topic: Topic) -> None:
    topic.failures = 3
    presence = presence_of(topic, ["running"])
    eventually(lambda: topic.known == (MINE,))
    topic.failures = 2
    presence.stop()
    assert topic.known == ()


def test_one_that_cannot_take_itself_away_says_so(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = presence_of(topic, ["running"])
    eventually(lambda: topic.known == (MINE,))
    topic.failures = 1_000_000
    monkeypatch.setattr(module, "_LEAVE_S", 0.1)
    stream = io.StringIO()
    with logging_to(stream):
        presence.stop()
    assert "announcement_stays" in stream.getvalue()
    assert topic.known == (MINE,)


def test_one_that_nobody_reaches_for_long_is_taken_away(topic: Topic) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = announced("9", listener.getsockname()[1])
    topic.put(gone.record)
    clock = Clock()
    peers = peers_of([gone], clock)
    presence = presence_of(topic, ["running"], peers)
    asyncio.run(peers.ask(StatusRequest(), 5))
    clock.now_s += GONE_S / 2
    asyncio.run(peers.ask(StatusRequest(), 5))
    looked_again(topic)
    assert gone in topic.known
    clock.now_s += GONE_S / 2 + LEFT_ALONE_S
    asyncio.run(peers.ask(StatusRequest(), 5))
    eventually(lambda: gone not in topic.known)
    presence.stop()


def test_one_that_came_back_elsewhere_is_not_taken_away(topic: Topic) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = announced("9", listener.getsockname()[1])
    back = gone._replace(started_at_ms=7)
    topic.put(back.record)
    clock = Clock()
    peers = peers_of([gone], clock)
    asyncio.run(peers.ask(StatusRequest(), 5))
    clock.now_s += GONE_S + LEFT_ALONE_S
    asyncio.run(peers.ask(StatusRequest(), 5))
    assert peers.lost_for(GONE_S) == (gone,)
    presence = presence_of(topic, ["running"], peers)
    eventually(lambda: peers.lost_for(GONE_S) == ())
    assert back in topic.known
    presence.stop()


def test_announcements_are_folded_by_name_and_decide_nothing() -> None:
    settings = MetadataImage()
    one, other = announced("1", 1), announced("2", 2)
    for offset, record in enumerate([other.record, one.record, removal_of("2")]):
        settings.take(offset, record.key, record.value)
    assert settings.instances.all == (one,)
    assert settings.revision == 0


@pytest.mark.parametrize(
    "value", [b"", b"{}", b"[]", b'{"name":"2","url":"u","started_at_ms":1,"version":"v"}']
)
def test_an_announcement_of_another_shape_is_none(value: bytes) -> None:
    instances = InstanceRegistry()
    assert instances.take(b'["instance","1"]', announced("1", 1).record.value)
    assert instances.take(b'["instance","1"]', value)
    assert instances.all == ()
    assert not instances.take(b'["session","1"]', value)
