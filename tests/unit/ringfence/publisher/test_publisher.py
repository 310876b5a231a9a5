"""The publisher as a user has it: real threads, real HTTP, a log of the test."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence_client.publisher import publisher as publisher_module
from ringfence_client.publisher.connection import ConnectionSettings
from ringfence_client.publisher.errors import (
    ClosedError,
    MessageRefusedError,
    NameInUseError,
    PublisherError,
    StoreError,
    StoreFullError,
    StoreHeldError,
)
from ringfence_client.publisher.message import Headers, Message
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence_client.publisher.publisher import Publisher
from ringfence_client.publisher.sender import PublisherState, Sender
from tests.fakes.admin_api import AdminApi, served
from tests.fakes.judge import FakeConnection, Judge
from tests.support.waiting import LIMIT_S, eventually

SOON_S = LIMIT_S


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminApi]:
    """A service that decides all the time, and connections to it."""
    judge = Judge()
    ends = threading.Event()

    def decide() -> None:
        while not ends.wait(0.002):
            judge.judge(100)

    def connection(_route: object, partition: int | None, _trouble: object) -> FakeConnection:
        return FakeConnection(judge, partition or 0)

    monkeypatch.setattr(publisher_module, "KafkaConnection", connection)
    thread = threading.Thread(target=decide)
    thread.start()
    with served(AdminApi(judge)) as running:
        yield running
    ends.set()
    thread.join(LIMIT_S)


@pytest.fixture
def new(api: AdminApi, tmp_path: Path) -> Iterator[Callable[..., Publisher]]:
    made: list[Publisher] = []

    def make(name: str = "p", **settings: Any) -> Publisher:
        chosen = {
            "topic": "orders",
            "store": tmp_path / f"{name}.store",
            "bootstrap_servers": "127.0.0.1:1",
            "admin_url": api.url,
        }
        made.append(Publisher(name, **{**chosen, **settings}))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(0)


def accepted(api: AdminApi) -> list[bytes | None]:
    return [sent.value for sent in api.judge.accepted]


def test_five_lines_are_enough(api: AdminApi, new: Callable[..., Publisher]) -> None:
    with new() as publisher:
        first = publisher.publish(b"value", key=b"k", headers=[("a", b"1")])
        assert publisher.publish(b"more") == first + 1
    assert accepted(api) == [b"value", b"more"]
    assert publisher.state is PublisherState.CLOSED


def test_publish_waits_for_nobody_and_the_next_life_sends(
    api: AdminApi, new: Callable[..., Publisher]
) -> None:
    api.judge.up = api.judge.broker_up = False
    publisher = new()
    for number in range(500):
        publisher.publish(b"%d" % number)
    assert publisher.pending == 500
    assert not publisher.flush(0.05)
    assert not publisher.close(0)
    api.judge.up = api.judge.broker_up = True
    again = new()
    assert again.flush(SOON_S)
    assert accepted(api) == [b"%d" % number for number in range(500)]


def test_threads_publish_side_by_side_and_each_keeps_its_order(
    api: AdminApi, new: Callable[..., Publisher]
) -> None:
    publisher = new()

    def send(who: int) -> None:
        for number in range(100):
            publisher.publish(b"%d %d" % (who, number))

    threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert publisher.flush(SOON_S)
    assert len(accepted(api)) == 400
    for who in range(4):
        mine = [value for value in accepted(api) if value and value.startswith(b"%d " % who)]
        assert mine == [b"%d %d" % (who, number) for number in range(100)]


def test_many_are_kept_at_once_or_not_at_all(new: Callable[..., Publisher]) -> None:
    publisher = new(store_messages_max=3, admin_url="http://127.0.0.1:1")
    three = [Message(b"v", None, (), 1)] * 3
    numbers = publisher.publish_all(three)
    assert len(numbers) == 3
    with pytest.raises(StoreFullError):
        publisher.publish_all(three)
    assert (publisher.pending, publisher.last_number) == (3, numbers[-1])


@pytest.mark.parametrize("name", ["_PUBLISHER", "_SEQ", "_PUBLISHER_EPOCH"])
def test_reserved_headers_are_refused(new: Callable[..., Publisher], name: str) -> None:
    with pytest.raises(MessageRefusedError, match=name):
        new().publish(b"v", headers=[(name, b"1")])


def test_what_is_too_large_or_no_bytes_is_refused_before_it_is_kept(
    new: Callable[..., Publisher],
) -> None:
    publisher = new(message_bytes_max=10, admin_url="http://127.0.0.1:1")
    publisher.publish(b"x" * 10)
    for value, key, headers in (
        (b"x" * 10, b"k", ()),
        ("text", None, ()),
        (b"", 5, ()),
        (b"", None, [("a", "text")]),
        (b"", None, [(b"a", b"")]),
    ):
        with pytest.raises(MessageRefusedError):
            publisher.publish(value, key=key, headers=headers)  # type: ignore[arg-type] # the point
    assert publisher.pending == 1


def test_a_store_is_of_one_publisher_at_a_time(new: Callable[..., Publisher]) -> None:
    first = new(partition=2)
    with pytest.raises(StoreHeldError):
        new()
    first.close(0)
    with pytest.raises(StoreError, match="keep partition=2") as refused:
        new(partition=3)
    assert new(partition=2).pending == 0, f"it is closed, not only forgotten: {refused}"


def test_the_error_that_stops_a_publisher_is_reported_and_raised_by_the_next_publish(
    api: AdminApi, new: Callable[..., Publisher], caplog: pytest.LogCaptureFixture
) -> None:
    api.judge.session("somebody")
    told: list[PublisherError] = []
    with caplog.at_level(logging.WARNING, "ringfence.publisher"):
        publisher = new(on_error=told.append, user="me")
        eventually(lambda: publisher.state is PublisherState.STOPPED)
    with pytest.raises(NameInUseError, match="somebody holds the name"):
        publisher.publish(b"v")
    assert publisher.last_error is told[0]
    assert publisher.pending == 0
    assert publisher.flush(SOON_S)
    assert "somebody holds the name" in caplog.text


@pytest.mark.parametrize(("name", "user"), [("me", "me"), (None, "unknown")])
def test_the_name_is_taken_for_the_user_of_the_process_if_it_has_one(
    api: AdminApi,
    new: Callable[..., Publisher],
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    user: str,
) -> None:
    def asked() -> str:
        if name is None:
            raise KeyError("getpwuid(): uid not found: 1001")
        return name

    monkeypatch.setattr("getpass.getuser", asked)
    publisher = new()
    publisher.publish(b"v")
    assert publisher.flush(SOON_S)
    assert [each.body for each in api.requests if each.method == "PUT"] == [{"user": user}]


def test_what_is_set_reaches_the_broker_and_the_service(
    api: AdminApi, new: Callable[..., Publisher], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told, sent, closed = list[ConnectionSettings](), list[Message](), list[FakeConnection]()

    class Told(FakeConnection):
        def send(self, message: Message, claim: Headers) -> bool:
            sent.append(message)
            return super().send(message, claim)

        def close(self) -> None:
            closed.append(self)
            super().close()

    def connection(
        settings: ConnectionSettings, _partition: int | None, _report: object
    ) -> FakeConnection:
        told.append(settings)
        return Told(api.judge, 0)

    monkeypatch.setattr(publisher_module, "KafkaConnection", connection)
    api.address = "at"
    kafka, producer = {"client.id": "x"}, {"linger.ms": 5}
    before_ms = time.time_ns() // 1_000_000
    name = "é" * 512
    publisher = new(
        name,
        address="at",
        group_id="g",
        user="me",
        kafka=kafka,
        producer=producer,
        store=tmp_path / "long.store",
    )
    publisher.publish(b"v", key=b"k", headers=[("a", b"1")], timestamp_ms=7)
    number = publisher.publish(None)
    after_ms = time.time_ns() // 1_000_000
    assert publisher.close(SOON_S)
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    assert told == [ConnectionSettings(name, "orders", "at", "g", {**kafka, **servers}, producer)]
    assert (api.judge.user, len(closed)) == ("me", 1)
    assert sent == [
        Message(b"v", b"k", (("a", b"1"),), 7),
        Message(None, None, (), sent[1].timestamp_ms),
    ]
    assert before_ms <= sent[1].timestamp_ms <= after_ms
    assert before_ms <= number // 1_000_000 <= after_ms, "numbers of a new store begin at the time"


@pytest.mark.parametrize(
    ("on_gap", "state"),
    [("stop", PublisherState.STOPPED), ("go_on", PublisherState.SENDING)],
)
def test_a_service_that_has_lost_numbers_stops_the_publisher_unless_it_may_go_on(
    api: AdminApi, new: Callable[..., Publisher], on_gap: str, state: PublisherState
) -> None:
    first = new()
    first.publish(b"v")
    assert first.close(SOON_S)
    api.judge.last = 5
    publisher = new(on_gap=on_gap)
    eventually(lambda: publisher.state is not PublisherState.LOGGING_ON)
    assert publisher.state is state


def test_waiting_for_a_publisher_that_has_stopped_ends_at_once(
    api: AdminApi, new: Callable[..., Publisher]
) -> None:
    api.judge.up = False
    first = new()
    first.publish(b"v")
    first.close(0)
    api.judge.up = True
    api.judge.session("somebody")
    publisher = new(user="me")
    eventually(lambda: publisher.state is PublisherState.STOPPED)
    began_s = time.monotonic()
    assert not publisher.flush(20)
    assert time.monotonic() - began_s < 10
    assert publisher.pending == 1


def test_a_publisher_with_nothing_to_send_rests(
    new: Callable[..., Publisher], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = list[None](), Sender.step

    def counted(sender: Sender) -> float:
        steps.append(None)
        return step(sender)

    monkeypatch.setattr(Sender, "step", counted)
    publisher = new()
    publisher.publish(b"v")
    assert publisher.flush(SOON_S)
    before, began_s = len(steps), time.monotonic()
    eventually(lambda: len(steps) >= before + 3)
    assert time.monotonic() - began_s > 0.4


def test_its_thread_keeps_no_process_alive_and_ends_with_the_publisher(
    new: Callable[..., Publisher],
) -> None:
    publisher = new()
    (thread,) = [each for each in threading.enumerate() if each.name == "publisher p"]
    assert thread.daemon
    publisher.close()
    assert not thread.is_alive()


def test_a_callback_that_fails_does_no_harm(
    api: AdminApi, new: Callable[..., Publisher], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_error: PublisherError) -> None:
        raise RuntimeError("the user's own")

    api.judge.up = False
    publisher = new(on_error=fail)
    publisher.publish(b"v")
    eventually(lambda: publisher.state is PublisherState.WAITING)
    api.judge.up = True
    assert publisher.flush(SOON_S)
    assert "on_error of publisher p failed" in caplog.text


def test_an_internal_fault_in_the_thread_stops_the_publisher_and_is_reported(
    api: AdminApi,
    new: Callable[..., Publisher],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_self: FakeConnection, _wait_s: float) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr(FakeConnection, "poll", broken)
    publisher = new()
    eventually(lambda: publisher.state is PublisherState.STOPPED)
    with pytest.raises(PublisherError, match="RuntimeError: a bug"):
        publisher.publish(b"v")
    assert "publisher p has stopped" in caplog.text
    assert api.judge.accepted == []


def test_a_closed_publisher_takes_nothing_and_may_be_closed_again(
    new: Callable[..., Publisher],
) -> None:
    publisher = new()
    assert publisher.close()
    publisher.close()
    with pytest.raises(ClosedError):
        publisher.publish(b"v")


def test_an_error_in_the_block_does_not_wait_for_acknowledgements(
    api: AdminApi, new: Callable[..., Publisher], monkeypatch: pytest.MonkeyPatch
) -> None:
    api.judge.up = False
    publisher, waits_s = new(), list[float]()
    monkeypatch.setattr(publisher, "close", waits_s.append)
    publisher.publish(b"v")
    publisher.__exit__(RuntimeError, RuntimeError("the user's"), None)
    publisher.__exit__(None, None, None)
    assert (waits_s[0], waits_s[1] > 0) == (0, True)
    monkeypatch.undo()


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": "é" * 513}, {"admin_url": "localhost:8080"}]
)
def test_a_bad_setting_is_said_at_once(
    new: Callable[..., Publisher], wrong: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"bytes|begins with"):
        new(**{"name": "p", "store": "/dev/null", **wrong})


def test_a_program_that_forgets_to_close_ends_and_keeps_its_messages(tmp_path: Path) -> None:
    program = f"""
from ringfence.publisher import Publisher
publisher = Publisher("p", topic="orders", store={str(tmp_path / "p.store")!r},
                      bootstrap_servers="127.0.0.1:1", admin_url="http://127.0.0.1:1")
publisher.publish(b"v")
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 0
    store = Outbox(
        str(tmp_path / "p.store"), OutboxOwner("p", "orders", "orders"), OutboxLimits(1, 1), 0
    )
    assert store.pending == 1
    store.close()
