"""The publisher: messages that arrive exactly once behind Ringfence, and a call that never waits.

    with Publisher("orders-7", topic="orders", store="orders-7.store",
                   bootstrap_servers="127.0.0.1:9092",
                   admin_url="http://127.0.0.1:8080") as publisher:
        publisher.publish(b"value", key=b"k", headers=[("a", b"1")])

`publish` writes to the store; a thread takes it from there (`ringfence/publisher/sender.py`). A
message that `publish` has returned for outlives the process: the next one with the same store
sends it. One name has one store, and writes one partition.
"""

import getpass
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Literal, Self

from ringfence.headers import EPOCH, NUMBER, PUBLISHER, PUBLISHER_BYTES_MAX
from ringfence.publisher.connection import ConnectionSettings, KafkaConnection
from ringfence.publisher.errors import ClosedError, MessageRefusedError, PublisherError
from ringfence.publisher.message import Message
from ringfence.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence.publisher.sender import PublisherState, Sender, SendPolicy
from ringfence.publisher.session import HttpSessionClient

_LOG: Final = logging.getLogger("ringfence.publisher")
_OURS: Final = frozenset({PUBLISHER, NUMBER, EPOCH})
_LOOK_S: Final = 0.01
_LEAVE_S: Final = 2.0
"""A thread that waits for a broker which is away cannot be called back; it ends by itself."""


class Publisher:
    """See the module. Safe for threads; not for a fork after it was made."""

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
        """Open the store and begin to send; docs/publishers.md tells what each setting does.

        ValueError for a bad setting, StoreError when the store cannot be opened. Nothing is
        asked of Kafka or the service here.
        """
        if not 0 < len(name.encode()) <= PUBLISHER_BYTES_MAX:
            raise ValueError(f"A publisher's name has 1 to {PUBLISHER_BYTES_MAX} bytes.")
        address = address or topic
        servers = {"bootstrap.servers": bootstrap_servers}
        route = ConnectionSettings(
            name, topic, address, group_id, {**(kafka or {}), **servers}, producer or {}
        )
        sessions = HttpSessionClient(admin_url, name, address, user or _user(), token)
        self.name = name
        self._message_bytes_max = message_bytes_max
        self._on_error = on_error
        room = OutboxLimits(store_messages_max, store_bytes_max)
        owner = OutboxOwner(name, topic, address)
        self._store = Outbox(
            os.fspath(store), owner, room, time.time_ns() // 10**6, sync_each=sync_each
        )
        try:
            if partition is not None:
                self._store.keep_partition(partition)
        except PublisherError:
            self._store.close()
            raise
        self._courier = Sender(
            name,
            self._store,
            sessions,
            lambda: KafkaConnection(route, self._store.standing.partition, self._courier.note),
            SendPolicy(gap_allowed=on_gap == "go_on", ack_wait_s=ack_wait_s),
            self._tell,
        )
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"publisher {name}", daemon=True)
        self._thread.start()

    @property
    def state(self) -> PublisherState:
        """What it does now."""
        return PublisherState.CLOSED if self._closing.is_set() else self._courier.state

    @property
    def last_error(self) -> PublisherError | None:
        """What went wrong since the last acknowledgement; None for nothing."""
        return self._courier.last_error

    @property
    def pending(self) -> int:
        """How many messages are not acknowledged yet."""
        return self._store.pending

    @property
    def last_number(self) -> int:
        """The number that was given last, in this life of the store or an earlier one."""
        return self._store.last_number

    def publish(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Keep a message and return its number; it is sent as soon as it can be.

        StoreFullError: nothing was taken. MessageRefusedError: it could never be delivered.
        StoppedError: the publisher is stopped for good, and why. ClosedError: it was closed.
        """
        now_ms = time.time_ns() // 10**6 if timestamp_ms is None else timestamp_ms
        return self.publish_all([Message(value, key, tuple(headers), now_ms)])[0]

    def publish_all(self, messages: Sequence[Message]) -> range:
        """Keep all the messages or none, at the cost of one write, and return their numbers.

        Raises what `publish` raises.
        """
        self._refuse_if_over()
        for message in messages:
            self._check(message)
        numbers = self._store.append(messages)
        self._news.set()
        return numbers

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is acknowledged, and return whether it is.

        Returns early when the publisher has stopped.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._store.pending:
            if (
                self.state in {PublisherState.STOPPED, PublisherState.CLOSED}
                or time.monotonic() > deadline_s
            ):
                return False
            time.sleep(_LOOK_S)
        return True

    def close(self, timeout_s: float = 10.0) -> bool:
        """Wait up to so long for acknowledgements, end, and return whether all came.

        What was not acknowledged stays in the store, and the next life sends it.
        """
        done = self.flush(timeout_s)
        self._closing.set()
        self._news.set()
        self._thread.join(_LEAVE_S)
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

    def _refuse_if_over(self) -> None:
        if self._closing.is_set():
            raise ClosedError(f"Publisher {self.name} is closed.")
        error = self._courier.last_error
        if self._courier.state is PublisherState.STOPPED and error is not None:
            raise type(error)(*error.args) from error

    def _check(self, message: Message) -> None:
        texts = (message.value, message.key, *(value for _, value in message.headers))
        names = {name for name, _ in message.headers}
        if not all(text is None or isinstance(text, bytes) for text in texts):
            raise MessageRefusedError("Value, key and header values are bytes or None.")
        if not all(isinstance(name, str) for name in names):
            raise MessageRefusedError("Names of headers are text.")
        if names & _OURS:
            raise MessageRefusedError(f"Header {min(names & _OURS)} is the publisher's own.")
        if message.bytes > self._message_bytes_max:
            raise MessageRefusedError(
                f"A message of {message.bytes} bytes; message_bytes_max is"
                f" {self._message_bytes_max}."
            )

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                # Before the step: what is published during it has to be seen by the next.
                self._news.clear()
                wait_s = self._courier.step()
                if wait_s and not self._closing.is_set():
                    self._news.wait(wait_s)
            self._courier.hang_up()
        except Exception as error:  # noqa: BLE001 - it is told, and publish raises it
            if self._closing.is_set():
                return  # the store was closed under it
            _LOG.exception("publisher %s has stopped", self.name)
            self._courier.stop(PublisherError(f"{type(error).__name__}: {error}"))

    def _tell(self, error: PublisherError) -> None:
        if self._closing.is_set():
            return  # of its own end there is nothing to tell
        _LOG.warning("publisher %s: %s", self.name, error)
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:  # noqa: BLE001 - the user's own; ours goes on
                _LOG.exception("on_error of publisher %s failed", self.name)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user has no name
        return "unknown"
