"""Outbox: messages that were published and are not acknowledged yet, in one SQLite file.

Numbers only grow, in the order of publishing. Up to `sent` a number belongs to its message for
ever, since a copy may be in transit; above it a message may still get another one.
Invariants: a message is in the file when `append` returns, so it survives the process; whatever is
sent was synced to the disk before (`mark_sent`), so that even after a power failure no number that
was seen outside means another message. One process at a time: SQLite's exclusive lock.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from ringfence.publisher.errors import PublishGapError, StoreError, StoreFullError, StoreHeldError
from ringfence.publisher.message import Message, NumberedMessage, numbered, row_of

_FORMAT: Final = 1

_TABLES: Final = """
CREATE TABLE message (number INTEGER PRIMARY KEY, key BLOB, value BLOB, headers TEXT NOT NULL,
                      timestamp_ms INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE owner (publisher TEXT NOT NULL, topic TEXT NOT NULL, address TEXT NOT NULL);
CREATE TABLE standing (partition INTEGER, floor INTEGER NOT NULL, acknowledged INTEGER NOT NULL,
                       sent INTEGER NOT NULL);
"""


class OutboxOwner(NamedTuple):
    """Whose messages a store holds; a store has one for its whole life."""

    publisher: str
    topic: str
    address: str


class OutboxProgress(NamedTuple):
    """How far a publisher has come."""

    partition: int | None
    """That it writes; None before it was first chosen."""
    floor: int
    """Nothing at or below it is given as a number again."""
    acknowledged: int
    """The highest number that the service has acknowledged; 0 without history."""
    sent: int
    """The highest number that may have been sent."""


def open_file(path: str, owner: OutboxOwner, first: OutboxProgress) -> sqlite3.Connection:
    """The file, made with the standing `first` where there is none.

    StoreHeldError: it is open elsewhere. StoreError: it is another owner's, or no store.
    """
    with suppress(OSError):  # SQLite says what is wrong with it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        # Of several threads one at a time uses it: the store has a lock.
        file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise problem(path, error) from error
    try:
        # Exclusive before the first access, or WAL would share the file with other processes.
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute("BEGIN EXCLUSIVE")
        _make(file, path, owner, first)
        file.execute("COMMIT")
    except sqlite3.Error as error:
        file.close()
        raise problem(path, error) from error
    except StoreError:
        file.close()
        raise
    return file


def problem(path: str, error: sqlite3.Error) -> StoreError:
    """What an error of SQLite means for a store."""
    # Errors of Python's own module, as of a closed file, have no name.
    if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
        return StoreHeldError(f"{path} is open in another publisher.")
    return StoreError(f"{path} cannot be used: {error}.")


def _make(file: sqlite3.Connection, path: str, owner: OutboxOwner, first: OutboxProgress) -> None:
    (version,) = file.execute("PRAGMA user_version").fetchone()
    (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        for statement in _TABLES.split(";"):
            file.execute(statement)
        file.execute("INSERT INTO owner VALUES (?, ?, ?)", owner)
        file.execute("INSERT INTO standing VALUES (?, ?, ?, ?)", first)
        file.execute(f"PRAGMA user_version = {_FORMAT}")
    elif version != _FORMAT:
        raise StoreError(f"{path} is no publish store of ours; name another file.")
    (found,) = file.execute("SELECT * FROM owner").fetchall()
    if found != owner:
        raise StoreError(
            f"{path} belongs to publisher {found[0]} on topic {found[1]}, address {found[2]};"
            " every publisher has a file of its own."
        )


class OutboxLimits(NamedTuple):
    """How much a store may hold."""

    messages_max: int
    bytes_max: int


class Outbox:
    """See the module. Safe for threads; StoreError where the file cannot be used."""

    def __init__(
        self,
        path: str,
        owner: OutboxOwner,
        room: OutboxLimits,
        now_ms: int,
        *,
        sync_each: bool = False,
    ) -> None:
        """Open the store, or make it with numbers that begin at the time in ms times 10^6.

        So a publisher that was installed anew does not fall below its old numbers. With
        `sync_each` the disk is waited for in each `append`.
        """
        self._path = path
        self._room = room
        self._lock = threading.RLock()
        self._file = open_file(path, owner, OutboxProgress(None, now_ms * 10**6, 0, 0))
        self._synchronous = "FULL" if sync_each else "NORMAL"
        self._file.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._messages = self._bytes = self._last = 0
        self._load()

    def close(self) -> None:
        """Let another process in."""
        with self._lock:
            self._file.close()

    @property
    def pending(self) -> int:
        """How many messages are not acknowledged."""
        return self._messages

    @property
    def last_number(self) -> int:
        """The number that was given last; the one before the first of a new store."""
        return self._last

    @property
    def standing(self) -> OutboxProgress:
        """How far the publisher has come."""
        return self._standing

    def append(self, messages: Sequence[Message]) -> range:
        """Keep the messages and return their numbers; StoreFullError when they do not all fit."""
        size = sum(message.bytes for message in messages)
        with self._lock:
            self._refuse_if_full(len(messages), size)
            with self._transaction():
                numbers = range(self._last + 1, self._last + 1 + len(messages))
                rows = map(row_of, numbers, messages)
                self._file.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._last += len(messages)
                self._messages += len(messages)
                self._bytes += size
        return numbers

    def after(self, number: int, messages_max: int, bytes_max: int) -> list[NumberedMessage]:
        """The next messages above the number: the first one, and what fits beside it."""
        found: list[NumberedMessage] = []
        query = "SELECT * FROM message WHERE number > ? ORDER BY number LIMIT ?"
        with self._reading():
            for *row, size in self._file.execute(query, (number, messages_max)):
                bytes_max -= size
                if found and bytes_max < 0:
                    break
                found.append(numbered(*row))
        return found

    def mark_sent(self, number: int) -> None:
        """Note, and sync to the disk, that all up to the number may have been sent."""
        if number <= self._standing.sent:
            return
        with self._lock:
            self._file.execute("PRAGMA synchronous = FULL")
            try:
                with self._transaction():
                    self._move(self._standing._replace(sent=number))
            finally:
                self._file.execute(f"PRAGMA synchronous = {self._synchronous}")

    def keep_partition(self, partition: int) -> None:
        """Remember the partition; StoreError when another one was written before."""
        known = self._standing.partition
        if known is None:
            with self._transaction():
                self._move(self._standing._replace(partition=partition))
        elif known != partition:
            raise StoreError(
                f"{self._path} was sent to partition {known}; a publisher writes one partition,"
                f" so keep partition={known} or use a new name and a new store."
            )

    def discard(self, number: int) -> None:
        """Drop what an acknowledgement covers; an older one changes nothing."""
        if number <= self._standing.acknowledged:
            return
        with self._transaction():
            self._drop(number)
            floor = max(self._standing.floor, number)
            self._move(self._standing._replace(floor=floor, acknowledged=number))

    def settle(self, accepted: int, *, gap_allowed: bool) -> None:
        """Agree with the highest number that the service has accepted, as it says at logon.

        What was sent up to it is dropped. What was never sent and is not above it gets new
        numbers above it. PublishGapError when the service knows less than was acknowledged:
        what lies between is no longer here.
        """
        with self._transaction():
            known = self._standing
            if accepted < known.acknowledged and not gap_allowed:
                raise PublishGapError(
                    f"{self._path} was acknowledged up to {known.acknowledged}, and the service"
                    f" remembers {accepted}: it has lost what lies between, or is another one."
                    " Open the publisher with on_gap='go_on' to send what is left."
                )
            self._drop(min(accepted, known.sent))
            self._renumber_above(accepted)
            floor = max(known.floor, accepted)
            self._last = max(self._last, floor)
            self._move(known._replace(floor=floor, acknowledged=accepted))

    def _refuse_if_full(self, messages: int, size: int) -> None:
        # Before the transaction: a program that tries again and again costs no more than this.
        if self._messages + messages > self._room.messages_max:
            raise StoreFullError(
                f"{self._path} holds {self._messages} messages, and {self._room.messages_max} is"
                " the most; is the service behind, or away?"
            )
        if self._bytes + size > self._room.bytes_max:
            raise StoreFullError(
                f"{self._path} holds {self._bytes} bytes, and {self._room.bytes_max} is the most;"
                " is the service behind, or away?"
            )

    def _renumber_above(self, accepted: int) -> None:
        query = "SELECT min(number) FROM message WHERE number > ?"
        (first,) = self._file.execute(query, (self._standing.sent,)).fetchone()
        if first is None or first > accepted:
            return
        shift = accepted + 1 - first
        # By way of negative numbers, as a new number may still be another message's old one.
        move = "UPDATE message SET number = -(number + ?) WHERE number >= ?"
        self._file.execute(move, (shift, first))
        self._file.execute("UPDATE message SET number = -number WHERE number < 0")
        self._last += shift

    def _drop(self, number: int) -> None:
        query = "SELECT count(*), total(bytes) FROM message WHERE number <= ?"
        messages, size = self._file.execute(query, (number,)).fetchone()
        self._file.execute("DELETE FROM message WHERE number <= ?", (number,))
        self._messages -= messages
        self._bytes -= int(size)

    def _move(self, standing: OutboxProgress) -> None:
        change = "UPDATE standing SET partition = ?, floor = ?, acknowledged = ?, sent = ?"
        self._file.execute(change, standing)
        self._standing = standing

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reading():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                self._load()  # whatever was half done in memory: the file is the truth
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise problem(self._path, error) from error

    def _load(self) -> None:
        (standing,) = self._file.execute("SELECT * FROM standing").fetchall()
        self._standing = OutboxProgress(*standing)
        query = "SELECT count(*), total(bytes), max(number) FROM message"
        self._messages, size, last = self._file.execute(query).fetchone()
        self._bytes = int(size)
        self._last = max(last or 0, self._standing.floor)
