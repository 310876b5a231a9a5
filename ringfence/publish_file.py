"""The file of a publish store: one SQLite database, held by one process, of one owner.

Only the user who made it can read it; SQLite gives the files beside it the same rights.
Tables: `message`, what is not acknowledged; `owner` and `standing`, a row each.
"""

import os
import sqlite3
from contextlib import suppress
from typing import Final, NamedTuple

from ringfence.publish_errors import StoreError, StoreHeldError

_FORMAT: Final = 1
_TABLES: Final = """
CREATE TABLE message (number INTEGER PRIMARY KEY, key BLOB, value BLOB, headers TEXT NOT NULL,
                      timestamp_ms INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE owner (publisher TEXT NOT NULL, topic TEXT NOT NULL, address TEXT NOT NULL);
CREATE TABLE standing (partition INTEGER, floor INTEGER NOT NULL, acknowledged INTEGER NOT NULL,
                       sent INTEGER NOT NULL);
"""


class Owner(NamedTuple):
    """Whose messages a store holds; a store has one for its whole life."""

    publisher: str
    topic: str
    address: str


class Standing(NamedTuple):
    """How far a publisher has come."""

    partition: int | None
    """That it writes; None before it was first chosen."""
    floor: int
    """Nothing at or below it is given as a number again."""
    acknowledged: int
    """The highest number that the service has acknowledged; 0 without history."""
    sent: int
    """The highest number that may have been sent."""


def open_file(path: str, owner: Owner, first: Standing) -> sqlite3.Connection:
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


def _make(file: sqlite3.Connection, path: str, owner: Owner, first: Standing) -> None:
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
