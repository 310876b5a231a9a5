"""Sender: sends the messages of the outbox to Kafka, and deletes those that are acknowledged.

    log on -> send all above the service's last number, in order -> receive acks -> ...
       ^                                                                          |
       +---- a connection that failed is closed; then a new session --------------+

Invariants: a message is sent only on a connection whose session was opened after the connection,
so that no acknowledgement is missed in between; `mark_sent` precedes `send`; a sender that finds
another one under its name stops, since the two would keep taking the name from each other.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from ringfence_client.headers import EPOCH, NUMBER, PUBLISHER
from ringfence_client.publisher.connection import Connection
from ringfence_client.publisher.errors import (
    AwayError,
    NameInUseError,
    PublisherError,
    StoppedError,
    StoreError,
)
from ringfence_client.publisher.message import Headers
from ringfence_client.publisher.outbox import Outbox
from ringfence_client.publisher.session import Session, SessionClient

_CHUNK_MESSAGES: Final = 1000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of messages that are read at once; one that is larger is read alone.

They are in memory, and `publish` waits while they are read. Each chunk costs a sync of the disk
(`mark_sent`), so a much smaller one would send slowly.
"""
_POLL_S: Final = 0.02
"""How long a message published while the sender waits for acks may stay in the store."""
_IDLE_S: Final = 0.5
"""How often errors and acknowledgements are polled while nothing is pending.

A published message ends the wait at once, and so does `close`.
"""
_FIRST_RETRY_S: Final = 0.2
"""The first pause after a failure; each further one is twice as long until `_LAST_RETRY_S`.

Short, since a lost connection can often be replaced at once.
"""
_LAST_RETRY_S: Final = 15.0
"""The longest pause: messages wait that long after the service or the broker is back.

Each attempt makes new clients, and with a broker that answers it opens a session, which every
deciding partition has to apply.
The service may ask for a longer pause with `Retry-After`.
"""


class PublisherState(StrEnum):
    """What a publisher is doing."""

    LOGGING_ON = "logging on"
    SENDING = "sending"
    WAITING = "waiting"
    """Waiting for the service or the broker, which is unreachable; `last_error` says which."""
    STOPPED = "stopped"
    """Stopped for good, because of `last_error`."""
    CLOSED = "closed"


class SendPolicy(NamedTuple):
    """The user's choices for sending."""

    gap_allowed: bool
    ack_wait_s: float
    """After this time without an ack, ask the service whether our session is still the newest."""


class Sender:
    """Sends the outbox of one publisher.

    One thread calls `step`; other threads may read `state` and `last_error`.
    """

    def __init__(
        self,
        publisher: str,
        store: Outbox,
        sessions: SessionClient,
        connect: Callable[[], Connection],
        policy: SendPolicy,
        on_error: Callable[[PublisherError], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = PublisherState.LOGGING_ON
        self.last_error: PublisherError | None = None
        self._publisher = publisher
        self._store = store
        self._sessions = sessions
        self._connect = connect
        self._policy = policy
        self._on_error = on_error
        self._clock_s = clock_s
        self._connection: Connection | None = None
        self._epoch: int | None = None
        """Epoch of our session; None when it is unknown, for example after a lost response."""
        self._accepted: int | None = None
        """The highest number that the service has reported to this process."""
        self._taken = 0
        """The highest number passed to the connection of this session."""
        self._progress_s = 0.0
        self._not_before_s = 0.0
        self._retry_s = _FIRST_RETRY_S

    def step(self) -> float:
        """Do what can be done now; return how many seconds the caller may wait before the next."""
        rest_s = self._not_before_s - self._clock_s()
        if self.state is PublisherState.STOPPED:
            return _IDLE_S
        if rest_s > 0:
            return rest_s
        try:
            connection = self._connection or self._log_on()
            return self._send_and_poll(connection)
        except AwayError as error:
            self._back_off(error)
        except (StoppedError, StoreError) as error:
            self.stop(error)
        return 0.0

    def stop(self, error: PublisherError) -> None:
        """Stop for good."""
        self.report(error)
        self.disconnect()
        self.state = PublisherState.STOPPED

    def report(self, error: PublisherError) -> None:
        """Record an error, and pass it on unless it repeats the last one."""
        same = str(error) == str(self.last_error)
        self.last_error = error
        if not same:
            self._on_error(error)

    def disconnect(self) -> None:
        """Close the connection, if any."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _log_on(self) -> Connection:
        self.state = PublisherState.LOGGING_ON
        connection = self._connect()
        try:
            self._store.keep_partition(connection.partition)
            session = self._open_session()
            self._raise_if_never_sent(session.accepted)
            doubt = self._doubt(session.accepted)
            self._store.settle(session.accepted, gap_allowed=self._policy.gap_allowed)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._accepted = self._taken = session.accepted
        self._progress_s = self._clock_s()
        self.state, self.last_error = PublisherState.SENDING, None
        if doubt is not None:
            self.report(doubt)
        return connection

    def _open_session(self) -> Session:
        self._raise_if_superseded()
        # If the response is lost, the newest session is our own and we do not know its epoch.
        self._epoch = None
        session = self._sessions.open()
        self._epoch = session.epoch
        return session

    def _send_and_poll(self, connection: Connection) -> float:
        more = self._send(connection)
        self._acknowledge(connection.poll(_POLL_S if self._store.pending and not more else 0))
        self._check_progress()
        return 0.0 if self._store.pending else _IDLE_S

    def _send(self, connection: Connection) -> bool:
        """Send the next messages; return whether more can be sent at once."""
        assert self._epoch is not None, "nothing is sent without a session"
        chunk = self._store.after(self._taken, _CHUNK_MESSAGES, _CHUNK_BYTES)
        if not chunk:
            return False
        self._store.mark_sent(chunk[-1].number)
        for number, message in chunk:
            if not connection.send(message, claim(self._publisher, number, self._epoch)):
                return False
            self._taken = number
        return True

    def _acknowledge(self, number: int) -> None:
        if number <= (self._accepted or 0):
            return
        self._raise_if_never_sent(number)
        self._store.discard(number)
        self._accepted = number
        self._progress_s = self._clock_s()
        self._retry_s = _FIRST_RETRY_S
        self.last_error = None

    def _check_progress(self) -> None:
        """Ask the service for its last number when no ack has arrived for `ack_wait_s`."""
        now_s = self._clock_s()
        if self._taken <= (self._accepted or 0):
            self._progress_s = now_s
        elif now_s - self._progress_s >= self._policy.ack_wait_s:
            self._progress_s = now_s
            self._check_session()

    def _check_session(self) -> None:
        before = self._accepted
        try:
            session = self._raise_if_superseded()
            self._acknowledge(session.accepted if session else 0)
        except AwayError as error:
            self.report(error)
            return
        if self._accepted == before:
            waited = f"No acknowledgement for {self._policy.ack_wait_s:g} s"
            self.report(AwayError(f"{waited}: is the topic behind, or are there dead letters?"))

    def _raise_if_superseded(self) -> Session | None:
        """Return the current session, or None if the service does not report it.

        Raises NameInUseError when a session was opened after ours.
        """
        if self._epoch is None:
            return None
        present = self._sessions.look_up()
        if present is not None and present.epoch > self._epoch:
            raise NameInUseError(f"{self._publisher}: another publisher has taken over the name.")
        return present

    def _raise_if_never_sent(self, accepted: int) -> None:
        """Raise NameInUseError when a number was accepted that this publisher never sent."""
        if self._accepted is None:
            return
        known = max(self._store.progress.sent, self._accepted)
        if accepted > known:
            raise NameInUseError(
                f"{self._publisher}: number {accepted} was accepted, and {known} is the highest"
                " that was sent here: another publisher uses the same name."
            )

    def _doubt(self, accepted: int) -> PublisherError | None:
        """Return an error if another store, or a lost one, has sent numbers unknown to this store.

        Messages sent from this store up to that number count as accepted, since the service would
        reject them in any case.
        """
        sent = self._store.progress.sent
        if not 0 < sent < accepted:
            return None
        return PublisherError(
            f"{self._publisher}: number {accepted} was accepted, and {sent} is the highest that was"
            " sent from this store. Was the name used with another store? Use one store per name."
        )

    def _back_off(self, error: AwayError) -> None:
        self.report(error)
        self.disconnect()
        self.state = PublisherState.WAITING
        self._not_before_s = self._clock_s() + max(error.retry_after_s, self._retry_s)
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)


def claim(publisher: str, number: int, epoch: int) -> Headers:
    """Return the headers by which the service judges a message."""
    return (
        (PUBLISHER, publisher.encode()),
        (NUMBER, b"%d" % number),
        (EPOCH, b"%d" % epoch),
    )
