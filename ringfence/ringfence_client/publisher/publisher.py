"""Publisher: stores each message and delivers it exactly once through Ringfence.

    with Publisher("orders-7", topic="orders", store="orders-7.store",
                   bootstrap_servers="127.0.0.1:9092",
                   admin_url="http://127.0.0.1:8080") as publisher:
        publisher.publish(b"value", key=b"k", headers=[("a", b"1")])

`publish` writes to the store and does not wait for Kafka; a thread sends what is stored
(`ringfence/ringfence_client/publisher/sender.py`). Once `publish` has returned, a message survives
the process: the next publisher with the same store sends it. A name has one store and writes one
partition.
"""

import getpass
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Self

from ringfence_client.headers import EPOCH, NUMBER, PUBLISHER, PUBLISHER_BYTES_MAX
from ringfence_client.publisher.connection import ConnectionSettings, KafkaConnection
from ringfence_client.publisher.errors import ClosedError, MessageRefusedError, PublisherError
from ringfence_client.publisher.message import Message
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence_client.publisher.sender import PublisherState, Sender, SendPolicy
from ringfence_client.publisher.session import HttpSessionClient

_LOG: Final = logging.getLogger("ringfence.publisher")
_OURS: Final = frozenset({PUBLISHER, NUMBER, EPOCH})
_FLUSH_POLL_S: Final = 0.01
"""How often `flush` looks at the counter of pending messages, which reads no disk.

It returns up to that much later than the last acknowledgement; less than the sender's `_POLL_S`.
"""
_JOIN_S: Final = 2.0
"""How long `close` waits for the thread; one that waits for a broker cannot be interrupted."""


class Publisher:
    """Publishes messages exactly once. Thread-safe; do not fork after creating one."""

    def __init__(
        self,
        name: str,
        *,
        topic: str,
        store: str | os.PathLike[str],
        bootstrap_servers: str,
        admin_url: str,
        address: str | None = None,
        partition: int | None = None,
        group_id: str = "ringfence",
        user: str | None = None,
        token: str | None = None,
        kafka: Mapping[str, object] | None = None,
        producer: Mapping[str, object] | None = None,
        store_messages_max: int = 1_000_000,
        store_bytes_max: int = 1024**3,
        message_bytes_max: int = 1_000_000,
        sync_each: bool = False,
        on_gap: Literal["stop", "go_on"] = "stop",
        on_error: Callable[[PublisherError], None] | None = None,
        ack_wait_s: float = 60.0,
    ) -> None:
        """Open the store and start sending; docs/publishers.md explains the settings.

        Raises ValueError for an invalid setting, and StoreError when the store cannot be opened or
        belongs to another publisher. Does not contact Kafka or the service.
        """
        if not 0 < len(name.encode()) <= PUBLISHER_BYTES_MAX:
            raise ValueError(f"A publisher's name has 1 to {PUBLISHER_BYTES_MAX} bytes.")
        address = address or topic
        servers = {"bootstrap.servers": bootstrap_servers}
        settings = ConnectionSettings(
            name, topic, address, group_id, {**(kafka or {}), **servers}, producer or {}
        )
        sessions = HttpSessionClient(admin_url, name, address, user or _user(), token)
        self.name = name
        self._message_bytes_max = message_bytes_max
        self._on_error = on_error
        limits = OutboxLimits(store_messages_max, store_bytes_max)
        owner = OutboxOwner(name, topic, address)
        self._store = Outbox(
            os.fspath(store), owner, limits, time.time_ns() // 10**6, sync_each=sync_each
        )
        lacking = limits.lacks_bytes(os.fspath(store))
        if lacking:
            _LOG.warning(
                "store_bytes_max of publisher %s is %d, %d bytes more than the disk of %s has room"
                " for; lower it, or make room",
                name,
                store_bytes_max,
                lacking,
                os.fspath(store),
            )
        try:
            if partition is not None:
                self._store.keep_partition(partition)
        except PublisherError:
            self._store.close()
            raise
        self._sender = Sender(
            name,
            self._store,
            sessions,
            lambda: KafkaConnection(settings, self._store.progress.partition, self._sender.report),
            SendPolicy(gap_allowed=on_gap == "go_on", ack_wait_s=ack_wait_s),
            self._report,
        )
        self._published = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher {name}", daemon=True)
        self._thread.start()

    @property
    def state(self) -> PublisherState:
        """What the publisher is doing now."""
        return PublisherState.CLOSED if self._closing.is_set() else self._sender.state

    @property
    def last_error(self) -> PublisherError | None:
        """The last error since the last acknowledgement, or None."""
        return self._sender.last_error

    @property
    def pending(self) -> int:
        """Number of messages that are not acknowledged yet."""
        return self._store.pending

    @property
    def last_number(self) -> int:
        """The number of the message published last, also by an earlier process with this store."""
        return self._store.last_number

    def publish(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Store a message and return its number; it is sent as soon as possible.

        `timestamp_ms` is in milliseconds since the epoch; the default is now.

        Raises MessageRefusedError when the message can never be delivered, StoreFullError when the
        store is full, StoreError when it cannot be written, StoppedError when the publisher has
        stopped for good, and ClosedError when it is closed. The message is then not stored.
        """
        now_ms = time.time_ns() // 10**6 if timestamp_ms is None else timestamp_ms
        return self.publish_all([Message(value, key, tuple(headers), now_ms)])[0]

    def publish_all(self, messages: Sequence[Message]) -> range:
        """Store all the messages or none, in one write, and return their numbers.

        Raises the errors of `publish`.
        """
        self._raise_if_ended()
        for message in messages:
            self._check(message)
        numbers = self._store.append(messages)
        self._published.set()
        return numbers

    def flush(self, timeout_s: float) -> bool:
        """Wait until all messages are acknowledged, and return whether they are.

        Returns False after `timeout_s` seconds, or as soon as the publisher has stopped.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._store.pending:
            if (
                self.state in {PublisherState.STOPPED, PublisherState.CLOSED}
                or time.monotonic() > deadline_s
            ):
                return False
            time.sleep(_FLUSH_POLL_S)
        return True

    def close(self, timeout_s: float = 10.0) -> bool:
        """Wait up to `timeout_s` for acknowledgements, close, and return whether all arrived.

        Messages that are not acknowledged stay in the store; the next publisher sends them.
        """
        done = self.flush(timeout_s)
        self._closing.set()
        self._published.set()
        self._thread.join(_JOIN_S)
        self._store.close()
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(0 if error else 10.0)

    def _raise_if_ended(self) -> None:
        if self._closing.is_set():
            raise ClosedError(f"Publisher {self.name} is closed.")
        error = self._sender.last_error
        if self._sender.state is PublisherState.STOPPED and error is not None:
            raise type(error)(*error.args) from error

    def _check(self, message: Message) -> None:
        texts = (message.value, message.key, *(value for _, value in message.headers))
        names = {name for name, _ in message.headers}
        if not all(text is None or isinstance(text, bytes) for text in texts):
            raise MessageRefusedError("Value, key and header values are bytes or None.")
        if not all(isinstance(name, str) for name in names):
            raise MessageRefusedError("Names of headers are text.")
        if names & _OURS:
            raise MessageRefusedError(
                f"Header {min(names & _OURS)} is set by the publisher; leave it out."
            )
        if message.bytes > self._message_bytes_max:
            raise MessageRefusedError(
                f"The message has {message.bytes} bytes; message_bytes_max is"
                f" {self._message_bytes_max}."
            )

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                # Clear before the step: the next one must see what is published during this one.
                self._published.clear()
                wait_s = self._sender.step()
                if wait_s and not self._closing.is_set():
                    self._published.wait(wait_s)
            self._sender.disconnect()
        except Exception as error:  # noqa: BLE001 - reported, and raised by the next publish
            if self._closing.is_set():
                return  # `close` has closed the store meanwhile
            _LOG.exception("publisher %s has stopped", self.name)
            self._sender.stop(PublisherError(f"{type(error).__name__}: {error}"))

    def _report(self, error: PublisherError) -> None:
        if self._closing.is_set():
            return  # errors of closing are expected
        _LOG.warning("publisher %s: %s", self.name, error)
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:  # noqa: BLE001 - the user's callback must not stop the publisher
                _LOG.exception("on_error of publisher %s failed", self.name)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # the user of a container may have no name
        return "unknown"
