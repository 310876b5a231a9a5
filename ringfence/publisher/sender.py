"""Sender: sends the messages of the outbox to Kafka, and deletes those that are acknowledged.

    log on -> send all that is above the service's last number, in order -> take acks -> ...
       ^                                                                       |
       +---- a connection that failed is dropped; then a new session ---------+

Invariants: a message is sent only on a connection whose session was opened after the connection,
so that no acknowledgement falls in between; `mark_sent` precedes `send`; a sender that finds
another one under its name stops, since the two would take the name from each other for ever.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from ringfence.headers import EPOCH, NUMBER, PUBLISHER
from ringfence.publisher.connection import Connection
from ringfence.publisher.errors import (
    AwayError,
    NameInUseError,
    PublisherError,
    StoppedError,
    StoreError,
)
from ringfence.publisher.message import Headers
from ringfence.publisher.outbox import Outbox
from ringfence.publisher.session import Session, SessionClient

_CHUNK_MESSAGES: Final = 1000
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_POLL_S: Final = 0.02
"""How long a message that is published while acks are waited for may lie in the store."""
_IDLE_S: Final = 0.5
_FIRST_RETRY_S: Final = 0.2
_LAST_RETRY_S: Final = 15.0


class PublisherState(StrEnum):
    """What a publisher does."""

    LOGGING_ON = "logging on"
    SENDING = "sending"
    WAITING = "waiting"
    """For a service or a broker that is away; `last_error` tells which."""
    STOPPED = "stopped"
    """For good, by `last_error`."""
    CLOSED = "closed"


class SendPolicy(NamedTuple):
    """What a user may choose."""

    gap_allowed: bool
    ack_wait_s: float
    """After so long without an ack the service is asked whether the session is still ours."""


class Sender:
    """See the module. One thread calls `step`; the others may read `state` and `last_error`."""

    def __init__(
        self,
        publisher: str,
        store: Outbox,
        sessions: SessionClient,
        connect: Callable[[], Connection],
        manners: SendPolicy,
        tell: Callable[[PublisherError], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.state = PublisherState.LOGGING_ON
        self.last_error: PublisherError | None = None
        self._publisher = publisher
        self._store = store
        self._sessions = sessions
        self._connect = connect
        self._manners = manners
        self._tell = tell
        self._clock_s = clock_s
        self._wire: Connection | None = None
        self._epoch: int | None = None
        """Of our session; None when it is not known, as after an answer that was lost."""
        self._accepted: int | None = None
        """The highest number that the service told us of in this life."""
        self._taken = 0
        """The highest number that was handed to the wire of this session."""
        self._progress_s = 0.0
        self._not_before_s = 0.0
        self._retry_s = _FIRST_RETRY_S

    def step(self) -> float:
        """Do what can be done now; return for how many seconds nothing else has to be done."""
        rest_s = self._not_before_s - self._clock_s()
        if self.state is PublisherState.STOPPED:
            return _IDLE_S
        if rest_s > 0:
            return rest_s
        try:
            wire = self._wire or self._log_on()
            return self._carry(wire)
        except AwayError as error:
            self._back_off(error)
        except (StoppedError, StoreError) as error:
            self.stop(error)
        return 0.0

    def stop(self, error: PublisherError) -> None:
        """Stop for good."""
        self.note(error)
        self.hang_up()
        self.state = PublisherState.STOPPED

    def note(self, error: PublisherError) -> None:
        """Something is wrong; told once for as long as it stays the same."""
        same = str(error) == str(self.last_error)
        self.last_error = error
        if not same:
            self._tell(error)

    def hang_up(self) -> None:
        """Drop the wire."""
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()

    def _log_on(self) -> Connection:
        self.state = PublisherState.LOGGING_ON
        wire = self._connect()
        try:
            self._store.keep_partition(wire.partition)
            session = self._open_session()
            self._refuse_foreign_numbers(session.accepted)
            doubt = self._doubt(session.accepted)
            self._store.settle(session.accepted, gap_allowed=self._manners.gap_allowed)
        except BaseException:
            wire.close()
            raise
        self._wire = wire
        self._accepted = self._taken = session.accepted
        self._progress_s = self._clock_s()
        self.state, self.last_error = PublisherState.SENDING, None
        if doubt is not None:
            self.note(doubt)
        return wire

    def _open_session(self) -> Session:
        self._refuse_a_younger_session()
        # If the answer is lost, the youngest session is our own and we do not know it.
        self._epoch = None
        session = self._sessions.open()
        self._epoch = session.epoch
        return session

    def _carry(self, wire: Connection) -> float:
        more = self._send(wire)
        self._acknowledge(wire.poll(_POLL_S if self._store.pending and not more else 0))
        self._watch()
        return 0.0 if self._store.pending else _IDLE_S

    def _send(self, wire: Connection) -> bool:
        """Hand over the next messages; whether more of them can go at once."""
        assert self._epoch is not None, "nothing is sent without a session"
        chunk = self._store.after(self._taken, _CHUNK_MESSAGES, _CHUNK_BYTES)
        if not chunk:
            return False
        self._store.mark_sent(chunk[-1].number)
        for number, message in chunk:
            if not wire.send(message, claim(self._publisher, number, self._epoch)):
                return False
            self._taken = number
        return True

    def _acknowledge(self, number: int) -> None:
        if number <= (self._accepted or 0):
            return
        self._refuse_foreign_numbers(number)
        self._store.discard(number)
        self._accepted = number
        self._progress_s = self._clock_s()
        self._retry_s = _FIRST_RETRY_S
        self.last_error = None

    def _watch(self) -> None:
        """Ask how things stand when no ack has come for long."""
        now_s = self._clock_s()
        if self._taken <= (self._accepted or 0):
            self._progress_s = now_s
        elif now_s - self._progress_s >= self._manners.ack_wait_s:
            self._progress_s = now_s
            self._ask()

    def _ask(self) -> None:
        before = self._accepted
        try:
            session = self._refuse_a_younger_session()
            self._acknowledge(session.accepted if session else 0)
        except AwayError as error:
            self.note(error)
            return
        if self._accepted == before:
            waited = f"No acknowledgement for {self._manners.ack_wait_s:g} s"
            self.note(AwayError(f"{waited}: is the topic behind, or are there dead letters?"))

    def _refuse_a_younger_session(self) -> Session | None:
        """NameInUseError when a session was opened after ours; else the present one, if told."""
        if self._epoch is None:
            return None
        present = self._sessions.look_up()
        if present is not None and present.epoch > self._epoch:
            raise NameInUseError(f"{self._publisher}: another publisher has taken over the name.")
        return present

    def _refuse_foreign_numbers(self, accepted: int) -> None:
        """NameInUseError when a number was accepted in this life that was never sent here."""
        if self._accepted is None:
            return
        known = max(self._store.standing.sent, self._accepted)
        if accepted > known:
            raise NameInUseError(
                f"{self._publisher}: number {accepted} was accepted, and {known} is the highest"
                " that was sent here: another publisher goes by the same name."
            )

    def _doubt(self, accepted: int) -> PublisherError | None:
        """Whether an earlier life, or another store, has sent what this store knows nothing of.

        What was sent from here up to that number is taken as accepted, as the service would
        refuse it in any case.
        """
        sent = self._store.standing.sent
        if not 0 < sent < accepted:
            return None
        return PublisherError(
            f"{self._publisher}: number {accepted} was accepted, and {sent} is the highest that"
            " was sent from this store. Was the name used with another one? A name has one store."
        )

    def _back_off(self, error: AwayError) -> None:
        self.note(error)
        self.hang_up()
        self.state = PublisherState.WAITING
        self._not_before_s = self._clock_s() + max(error.retry_after_s, self._retry_s)
        self._retry_s = min(2 * self._retry_s, _LAST_RETRY_S)


def claim(publisher: str, number: int, epoch: int) -> Headers:
    """The headers that the service judges by."""
    return (
        (PUBLISHER, publisher.encode()),
        (NUMBER, b"%d" % number),
        (EPOCH, b"%d" % epoch),
    )
