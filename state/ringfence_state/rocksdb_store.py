"""RocksDB store: one database for each deciding partition. The only module that uses RocksDB.

A transaction's edits and its position are one WriteBatch, so a torn write can only leave the store
behind by whole transactions. The write-ahead log is not synced, for the same reason: what a power
failure removes is still in the changelog. A replay uses no log at all: all of it is in files before
anything is logged behind it.
"""

import fcntl
import json
import os
import re
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBRecoveryMode,
    Options,
    Rdict,
    RdictIter,
    WriteBatch,
    WriteOptions,
)

from ringfence_state.model import Edit, PartitionId
from ringfence_state.store import (
    OPEN_FILES_MAX,
    Identity,
    StoreCorruptError,
    StoreFailedError,
    StoreLockedError,
    StorePosition,
    StoreStats,
    disk_fault_of,
)

_POSITION_KEY: Final = b"\x00position"
_WRITE_BUFFER_BYTES: Final = 16 * 1024 * 1024
"""Size of a memtable. A store has two at most, so each partition may take 32 MiB.

A quarter of RocksDB's default, since a worker has a store for each partition. With less, small
files would be written and compacted more often.
"""
_BLOCK_CACHE_BYTES: Final = 32 * 1024 * 1024
"""Block cache of all stores of a worker, with their indexes and filters.

Small beside `cache_memory_mb`: addresses in use are held in memory by `ringfence_state.cache`.
"""
_HELD: Final = "While lock file"
_NAME_BYTES_MAX: Final = 255
"""Longest name of a file or folder; a topic name may have 249 bytes."""
_LOGGED: Final = WriteOptions()
_UNLOGGED: Final = WriteOptions()
_UNLOGGED.disable_wal = True  # type: ignore[method-assign,assignment]  # the stub is wrong
_WIPED: Final = ".wiped"
"""Of the folder of a store that is being deleted."""
_LOCK: Final = ".lock"
"""Of the file that is locked while a store is open or wiped."""
_WANTED: Final = ".wanted"
"""Of an empty file, by whose time a process asks for a store that another one has open."""
_WANTED_S: Final = 2.0
"""How long it counts: the process that waits asks again several times in it, while it lives."""
_STALLS: Final = re.compile(r"total-(?:delays|stops): ([0-9]+)")


class RocksStore:
    """A RocksDB database that implements `Store`."""

    def __init__(self, source: PartitionId, path: Path, options: Options, lock: int) -> None:
        """`lock` is a file descriptor that is closed with the database."""
        self._source = source
        self._path = path
        self._unlock = weakref.finalize(self, os.close, lock)
        self.derived = path / "derived"
        """A folder within that of the database, which leaves it alone."""
        self._iterators: list[RdictIter] = []
        """Those of which no scan is at work, and which see all that was written."""
        self._is_unlogged = False
        """Whether something was replayed that may be in no file yet."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.db = Rdict(str(path), options=options)
            self._position = self._read_position()
        except OSError as error:
            raise StoreFailedError(f"{path}: {error}") from error
        except Exception as error:
            raise self._translated(error) from error

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` on whose keys start with the prefix, ascending."""
        iterators = self._iterators
        try:
            entries = iterators.pop() if iterators else self.db.iter()
            entries.seek(max(prefix, start))
            while entries.valid():
                key, value = bytes(entries.key()), bytes(entries.value())
                if not key.startswith(prefix):
                    break
                yield key, value
                entries.next()
            else:
                entries.status()  # it ends quietly where a block is damaged; this raises
        except Exception as error:
            raise self._translated(error) from error
        iterators.append(entries)  # of a list that nobody has any more if there was a write

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, or None."""
        try:
            value = self.db.get(key)
        except Exception as error:
            raise self._translated(error) from error
        return None if value is None else bytes(value)

    def next_key(self, key: bytes) -> bytes | None:
        """Return the first key at or after this one, or None."""
        return self._key_at(lambda entries: entries.seek(key))

    def previous_key(self, key: bytes) -> bytes | None:
        """Return the last key before this one, or None."""

        def before(entries: RdictIter) -> None:
            entries.seek_for_prev(key)
            if entries.valid() and bytes(entries.key()) == key:
                entries.prev()

        return self._key_at(before)

    def _key_at(self, move: Callable[[RdictIter], None]) -> bytes | None:
        try:
            entries = self.db.iter()
            move(entries)
            if entries.valid():
                found = bytes(entries.key())
                return None if found == _POSITION_KEY else found
            entries.status()
        except Exception as error:
            raise self._translated(error) from error
        return None

    def position(self) -> StorePosition | None:
        """Return the position of the last `apply`; None when the store is new."""
        return self._position

    def apply(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write all edits and the position in one WriteBatch."""
        if self._is_unlogged:
            self._flush()
        self._write(edits, position, _LOGGED)

    def replay(self, edits: Iterable[Edit], position: StorePosition) -> None:
        """Write without the write-ahead log, which takes a quarter of the time of a restore.

        What is in no file then goes as a whole when the process dies.
        """
        self._is_unlogged = True
        self._write(edits, position, _UNLOGGED)

    def _flush(self) -> None:
        """Write what is in no file: what the log has is replayed on top of the files alone."""
        try:
            self.db.flush()
        except Exception as error:
            raise self._translated(error) from error
        self._is_unlogged = False

    def _write(self, edits: Iterable[Edit], position: StorePosition, options: WriteOptions) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in edits:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(_POSITION_KEY, _position_bytes(position))
        try:
            self.db.write(batch, options)
        except Exception as error:
            raise self._translated(error) from error
        self._position = position
        self._iterators = []

    def figures(self) -> StoreStats:
        """Return size and activity; a figure that RocksDB does not report is 0."""
        return StoreStats(
            keys=self._number("estimate-num-keys"),
            memory_bytes=self._number("cur-size-all-mem-tables"),
            cache_bytes=self._number("block-cache-usage"),
            table_bytes=self._number("total-sst-files-size"),
            disk_bytes=_folder_bytes(self._path),
            compaction_bytes=self._number("estimate-pending-compaction-bytes"),
            stalls=self._stalls(),
        )

    def _number(self, name: str) -> int:
        """Return an integer property of RocksDB; 0 when it cannot be read."""
        with suppress(Exception):
            return int(self.db.property_int_value(f"rocksdb.{name}") or 0)
        return 0

    def _stalls(self) -> int:
        """Return how many writes were delayed or stopped; RocksDB times them only at a cost."""
        report = ""
        with suppress(Exception):
            report = self.db.property_value("rocksdb.cf-write-stall-stats") or ""
        return sum(map(int, _STALLS.findall(report)))

    def close(self) -> None:
        """Close the database. An error here is ignored: the next open reports the damage again."""
        self._iterators.clear()
        with suppress(Exception):
            self.db.close()
        self._unlock()

    def _read_position(self) -> StorePosition | None:
        value = self.db.get(_POSITION_KEY)
        if value is None:
            return None
        fields = json.loads(value)
        return StorePosition(Identity(*fields["identity"]), *fields["place"])

    def _translated(self, error: Exception) -> Exception:
        if _HELD in str(error):
            return StoreLockedError(str(self._path))
        if disk_fault_of(error) is not None:
            return StoreFailedError(f"{self._path}: {error}")
        return StoreCorruptError(self._source, error)


class RocksStores:
    """The databases of one worker below its folder; they share one block cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options = _options()

    def open(self, source: PartitionId) -> RocksStore:
        """Open the store of a partition; raise as `Stores.open` does."""
        self._finish_wipe(source)
        return RocksStore(source, self._path(source), self.options, self._locked(source))

    def wipe(self, source: PartitionId) -> None:
        """Delete the store of a partition; raise as `Stores.wipe` does.

        The store is renamed first. Otherwise, if the process died after deleting the older of two
        write-ahead logs, RocksDB would recover the newer one alone, with its position.
        """
        lock = self._locked(source)
        try:
            self._finish_wipe(source)
            self._path(source).rename(self._named(source, _WIPED))
            self._finish_wipe(source)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFailedError(f"{self._path(source)}: {error}") from error
        finally:
            os.close(lock)

    def _locked(self, source: PartitionId) -> int:
        """Lock a store, by a file beside it, until the returned file descriptor is closed.

        RocksDB's own lock is in the folder that a wipe removes, and each attempt to take it leaves
        a file in the folder.
        """
        path = self._named(source, _LOCK)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        except OSError as error:
            raise StoreFailedError(f"{path}: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise StoreLockedError(str(path)) from error
            raise StoreFailedError(f"{path}: {error}") from error
        return lock

    def want(self, source: PartitionId) -> None:
        """Ask the process that has the store of a partition open to close it; see `Stores.want`."""
        with suppress(OSError):  # then it is closed when its process ends
            self._named(source, _WANTED).touch(mode=0o600)

    def is_wanted(self, source: PartitionId) -> bool:
        """Whether another process has asked for the store of a partition a moment ago."""
        with suppress(OSError):
            asked_s = self._named(source, _WANTED).stat().st_mtime
            return abs(time.time() - asked_s) < _WANTED_S
        return False

    def _finish_wipe(self, source: PartitionId) -> None:
        """Delete a renamed store, also one left behind by a process that died."""
        path = self._named(source, _WIPED)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreFailedError(f"{path}: {error}") from error

    def _named(self, source: PartitionId, suffix: str) -> Path:
        """Return a path beside a store; the names of stores differ, since they end in a number."""
        name = f"{source.topic}-{source.partition}{suffix}"
        if len(name) > _NAME_BYTES_MAX:
            name = f"{sha256(source.topic.encode()).hexdigest()}-{source.partition}{suffix}"
        return self._folder / name

    def _path(self, source: PartitionId) -> Path:
        return self._folder / f"{source.topic}-{source.partition}"


def _options() -> Options:
    # Set explicitly at every open: options left out would be read back from the disk.
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - the binding takes positions only
    options.set_paranoid_checks(True)
    options.set_wal_recovery_mode(DBRecoveryMode.point_in_time())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_max_open_files(OPEN_FILES_MAX)
    options.set_keep_log_file_num(2)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    table.set_cache_index_and_filter_blocks(True)
    # An index in parts: one that is whole is larger than what it helps to read, and evicts it.
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    options.set_block_based_table_factory(table)
    return options


def _folder_bytes(path: Path) -> int:
    """Return the size of all files below a folder; a file deleted meanwhile counts 0."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                total += (Path(folder) / name).stat().st_size
    return total


def _position_bytes(position: StorePosition) -> bytes:
    place = [position.input_next, position.changelog_next, position.level_at_ms]
    return json.dumps({"identity": list(position.identity), "place": place}).encode()
