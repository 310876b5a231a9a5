"""Outbox: published messages that are not acknowledged yet, in one SQLite file.

Numbers only grow, in the order of publishing. Up to `sent` a number belongs to its message
permanently, since a copy may be in transit; above it a message may still be renumbered.
Invariants: a message is in the file when `append` returns, so it survives the process. A number is
synced to the disk before it is sent (`mark_sent`), so even after a power failure no number that was
seen outside means another message. SQLite's exclusive lock admits one process at a time. A full
disk stops `append` alone: whatever sends and deletes messages has the reserve (`reserve.py`).
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from typing import Final, NamedTuple

from ringfence_client.publisher.errors import (
    PublishGapError,
    StoreError,
    StoreFullError,
    StoreHeldError,
)
from ringfence_client.publisher.message import Message, NumberedMessage, numbered, row_of
from ringfence_client.publisher.reserve import Reserve

_FORMAT: Final = 1

_TABLES: Final = """
CREATE TABLE message (number INTEGER PRIMARY KEY, key BLOB, value BLOB, headers TEXT NOT NULL,
                      timestamp_ms INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE owner (publisher TEXT NOT NULL, topic TEXT NOT NULL, address TEXT NOT NULL);
CREATE TABLE standing (partition INTEGER, floor INTEGER NOT NULL, acknowledged INTEGER NOT NULL,
                       sent INTEGER NOT NULL);
"""


class OutboxOwner(NamedTuple):
    """The publisher, topic and address of a store; they never change."""

    publisher: str
    topic: str
    address: str


class OutboxProgress(NamedTuple):
    """The progress of a publisher."""

    partition: int | None
    """The partition that it writes; None until it is first chosen."""
    floor: int
    """No number at or below it is assigned again."""
    acknowledged: int
    """The highest number that the service has acknowledged; 0 before the first."""
    sent: int
    """The highest number that may have been sent."""


def open_file(path: str, owner: OutboxOwner, first: OutboxProgress) -> sqlite3.Connection:
    """Open the file of a store; create it with the progress `first` when it does not exist.

    Raises StoreHeldError when it is open elsewhere, StoreError when it belongs to another owner or
    is no store.
    """
    with suppress(OSError):  # SQLite reports the error below
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        # Threads share the connection; the lock of `Outbox` lets one use it at a time.
        file = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise problem(path, error) from error
    try:
        # Must be set before the first access, or WAL would share the file with other processes.
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute("BEGIN EXCLUSIVE")
        _create(file, path, owner, first)
        file.execute("COMMIT")
    except sqlite3.Error as error:
        file.close()
        raise problem(path, error) from error
    except StoreError:
        file.close()
        raise
    return file


def problem(path: str, error: sqlite3.Error) -> StoreError:
    """Return the store error for an error of SQLite."""
    # Errors of Python's sqlite3 module itself, such as a closed file, have no name.
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_BUSY"):
        return StoreHeldError(f"{path} is open in another publisher.")
    if name == "SQLITE_FULL":
        return disk_full(path)
    return StoreError(f"{path} cannot be used: {error}.")


def disk_full(path: str) -> StoreFullError:
    """Return the error of a store that holds less than it may, because its disk is full."""
    return StoreFullError(
        f"The disk of {path} is full; make room on it. Messages are still sent, and deleted once"
        " they are acknowledged."
    )


def _create(file: sqlite3.Connection, path: str, owner: OutboxOwner, first: OutboxProgress) -> None:
    (version,) = file.execute("PRAGMA user_version").fetchone()
    (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        for statement in _TABLES.split(";"):
            file.execute(statement)
        file.execute("INSERT INTO owner VALUES (?, ?, ?)", owner)
        file.execute("INSERT INTO standing VALUES (?, ?, ?, ?)", first)
        file.execute(f"PRAGMA user_version = {_FORMAT}")
    elif version != _FORMAT:
        raise StoreError(f"{path} is not a publisher's store; name another file.")
    (found,) = file.execute("SELECT * FROM owner").fetchall()
    if found != owner:
        raise StoreError(
            f"{path} belongs to publisher {found[0]} on topic {found[1]}, address {found[2]};"
            " give each publisher its own file."
        )


class OutboxLimits(NamedTuple):
    """How many messages and bytes a store may hold."""

    messages_max: int
    bytes_max: int

    def lacks_bytes(self, path: str) -> int:
        """Return how many bytes the store's disk lacks for all that the store may hold."""
        files = Path(path), Path(f"{path}-wal")
        has = sum(file.stat().st_size for file in files if file.exists())
        return max(0, self.bytes_max - has - disk_usage(Path(path).parent).free)


class Outbox:
    """The store of one publisher. Thread-safe; every method may raise StoreError."""

    def __init__(
        self,
        path: str,
        owner: OutboxOwner,
        limits: OutboxLimits,
        now_ms: int,
        *,
        sync_each: bool = False,
    ) -> None:
        """Open the store; the numbers of a new one begin at the time in ms times 10^6.

        So a reinstalled publisher does not fall below its old numbers. With `sync_each`, each
        `append` waits for the disk.
        """
        self._path = path
        self._limits = limits
        self._lock = threading.RLock()
        self._file = open_file(path, owner, OutboxProgress(None, now_ms * 10**6, 0, 0))
        self._reserve = Reserve(path, limits.bytes_max)
        self._synchronous = "FULL" if sync_each else "NORMAL"
        self._file.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._messages = self._bytes = self._last = 0
        self._load()

    def close(self) -> None:
        """Close the file, which releases its lock."""
        with self._lock:
            self._file.close()

    @property
    def pending(self) -> int:
        """Number of messages that are not acknowledged."""
        return self._messages

    @property
    def last_number(self) -> int:
        """The number assigned last; in a new store the one before the first."""
        return self._last

    @property
    def progress(self) -> OutboxProgress:
        """The progress of the publisher."""
        return self._progress

    def append(self, messages: Sequence[Message]) -> range:
        """Store all messages and return their numbers; raise StoreFullError if they do not fit."""
        size = sum(message.bytes for message in messages)
        with self._lock:
            self._raise_if_full(len(messages), size)
            with self._transaction():
                numbers = range(self._last + 1, self._last + 1 + len(messages))
                rows = map(row_of, numbers, messages)
                self._file.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
                self._last += len(messages)
                self._messages += len(messages)
                self._bytes += size
        return numbers

    def after(self, number: int, messages_max: int, bytes_max: int) -> list[NumberedMessage]:
        """Return the next messages above the number: the first, and more within the limits."""
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
        """Record, synced to the disk, that all messages up to the number may have been sent."""
        if number <= self._progress.sent:
            return
        with self._lock:
            self._file.execute("PRAGMA synchronous = FULL")
            try:
                self._change(lambda: self._set_progress(self._progress._replace(sent=number)))
            finally:
                self._file.execute(f"PRAGMA synchronous = {self._synchronous}")

    def keep_partition(self, partition: int) -> None:
        """Record the partition; raise StoreError when another one was written before."""
        known = self._progress.partition
        if known is None:
            self._change(lambda: self._set_progress(self._progress._replace(partition=partition)))
        elif known != partition:
            raise StoreError(
                f"{self._path} was sent to partition {known}; a publisher writes one partition,"
                f" so keep partition={known} or use a new name and a new store."
            )

    def discard(self, number: int) -> None:
        """Delete the messages that an acknowledgement covers; an older one changes nothing."""
        if number <= self._progress.acknowledged:
            return

        def change() -> None:
            self._delete(number)
            floor = max(self._progress.floor, number)
            self._set_progress(self._progress._replace(floor=floor, acknowledged=number))

        self._change(change)

    def settle(self, accepted: int, *, gap_allowed: bool) -> None:
        """Adopt the highest number that the service has accepted, as reported at logon.

        Messages sent up to it are deleted. Messages that were never sent and are not above it get
        new numbers above it. Raises PublishGapError when the service has accepted less than it
        acknowledged, unless `gap_allowed`: the messages between are already deleted here.
        """

        def change() -> None:
            known = self._progress
            if accepted < known.acknowledged and not gap_allowed:
                raise PublishGapError(
                    f"{self._path} was acknowledged up to {known.acknowledged}, and the service"
                    f" remembers {accepted}: it has lost the messages between, or it is another"
                    " service. Open the publisher with on_gap='go_on' to send what is left."
                )
            self._delete(min(accepted, known.sent))
            self._renumber_above(accepted)
            floor = max(known.floor, accepted)
            self._last = max(self._last, floor)
            self._set_progress(known._replace(floor=floor, acknowledged=accepted))

        self._change(change)

    def _raise_if_full(self, messages: int, size: int) -> None:
        # Checked before the transaction, so that a caller who keeps retrying costs little.
        if not self._reserve.keep():
            raise disk_full(self._path)
        if self._messages + messages > self._limits.messages_max:
            raise StoreFullError(
                f"{self._path} holds {self._messages} messages; the limit is"
                f" {self._limits.messages_max}. Is the service behind or unreachable?"
            )
        if self._bytes + size > self._limits.bytes_max:
            raise StoreFullError(
                f"{self._path} holds {self._bytes} bytes; the limit is {self._limits.bytes_max}."
                " Is the service behind or unreachable?"
            )

    def _renumber_above(self, accepted: int) -> None:
        query = "SELECT min(number) FROM message WHERE number > ?"
        (first,) = self._file.execute(query, (self._progress.sent,)).fetchone()
        if first is None or first > accepted:
            return
        shift = accepted + 1 - first
        # Through negative numbers, since a new number may still be another message's old one.
        move = "UPDATE message SET number = -(number + ?) WHERE number >= ?"
        self._file.execute(move, (shift, first))
        self._file.execute("UPDATE message SET number = -number WHERE number < 0")
        self._last += shift

    def _delete(self, number: int) -> None:
        query = "SELECT count(*), total(bytes) FROM message WHERE number <= ?"
        messages, size = self._file.execute(query, (number,)).fetchone()
        self._file.execute("DELETE FROM message WHERE number <= ?", (number,))
        self._messages -= messages
        self._bytes -= int(size)

    def _set_progress(self, progress: OutboxProgress) -> None:
        change = "UPDATE standing SET partition = ?, floor = ?, acknowledged = ?, sent = ?"
        self._file.execute(change, progress)
        self._progress = progress

    def _change(self, change: Callable[[], None]) -> None:
        """Make a change that a full disk must not prevent: the reserve has room for it."""
        with self._lock:
            try:
                with self._transaction():
                    change()
            except StoreFullError:
                if not self._reserve.release():
                    raise
                self._shrink_log()
                with self._transaction():
                    change()
                self._shrink_log()
                self._reserve.keep()

    def _shrink_log(self) -> None:
        """Move what SQLite's log has into the file, which grows by no more, and empty the log."""
        with suppress(sqlite3.Error):
            self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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
                self._load()  # counters may be half updated; the file is right
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise problem(self._path, error) from error

    def _load(self) -> None:
        (progress,) = self._file.execute("SELECT * FROM standing").fetchall()
        self._progress = OutboxProgress(*progress)
        query = "SELECT count(*), total(bytes), max(number) FROM message"
        self._messages, size, last = self._file.execute(query).fetchone()
        self._bytes = int(size)
        self._last = max(last or 0, self._progress.floor)
