"""Runs of a ring: files that find the numbers of its older ids, so that memory has only filters.

The newest ids are in the table of the ring. When there are enough of them a thread writes a run of
them, and merges adjacent runs into larger ones, so that their number grows with the logarithm of
the ids. A run whose ids are all evicted is deleted.
Invariant: runs are made from stored segments alone, and at a start each is compared with the
segment that it ends with. Whatever is missing or damaged is made again from the segments.
"""

import hashlib
import itertools
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar, Final, NamedTuple

from ringfence_service.native.extension import loaded
from ringfence_state.keys import prefix
from ringfence_state.model import Edit
from ringfence_state.ring_sizes import YOUNG_IDS
from ringfence_state.segment import SegmentEntry, first_of, row_of
from ringfence_state.store import Store, StoreFailedError, disk_fault_of
from ringfence_state.stored_segments import StoredSegments, folder_of

BUILT_IDS: Final = 1 << 20
"""Number of ids of a run that is made from segments: sorting them takes 40 MiB for a moment."""
_MERGED: Final = 3
"""How many runs are merged at least: two would be written more often, four are more to ask."""
_GROWTH: Final = 1.5
"""How many times the largest of them the new run has: each id is written some six times in all."""
_AT_ONCE: Final = 16
"""How many runs are merged at most: each entry is compared with those of as many."""
_LARGEST: Final = 4
"""No run is to have more than this part of the ids held.

The oldest run keeps its evicted ids until the last of them is evicted: an eighth of all on average.
"""
_STEP_ENTRIES: Final = 1 << 20
"""How many entries a merge writes, some 60 ms, before it looks whether it is still wanted."""
_ID_BYTES: Final = 16
"""An id as the extension gives it: its hash and its row in its segment."""
_SEED_BYTES: Final = 16
"""The key of the hash function (SipHash)."""
_SUFFIX: Final = ".run"
_NUMBER_BYTES: Final = 8
"""The number at the end of the key of a segment."""


class IdLookups(NamedTuple):
    """How many ids of large rings this process has looked for."""

    all: int
    in_files: int
    """For so many of them a file was read: a copy of an older id, or a filter that does not fit."""


def lookups() -> IdLookups:
    """Return how many there were; none on the path in Python."""
    module = loaded().module
    return IdLookups(0, 0) if module is None else IdLookups(*module.lookups())


class RunFiles(NamedTuple):
    """The files of the runs of an address."""

    files: int
    bytes: int


def runs_of(store: Store, kind: bytes, address: str) -> RunFiles:
    """Return which runs the disk has of an address, loaded or not: none on the path in Python."""
    folder = folder_of(store, prefix(kind, address))
    sizes = []
    with suppress(FileNotFoundError):  # a run may be deleted meanwhile, or there is no folder
        paths = [] if folder is None else list(folder.glob(f"*{_SUFFIX}"))
        sizes += [path.stat().st_size for path in paths]
    return RunFiles(len(sizes), sum(sizes))


class _Made(NamedTuple):
    """A new run, in a file that has a preliminary name."""

    run: Any
    path: Path


class _Thread:
    """A thread for work that holds the lock of the interpreter only between two steps of it.

    It is a daemon: what it writes is a new file, which nobody looks at before it is whole.
    """

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Future[_Made | None], Callable[[], _Made | None]]] = (
            SimpleQueue()
        )
        threading.Thread(target=self._work, name="runs", daemon=True).start()

    def submit(self, task: Callable[[], _Made | None]) -> "Future[_Made | None]":
        """Have a task done after those before it."""
        future = Future[_Made | None]()
        self._tasks.put((future, task))
        return future

    def _work(self) -> None:
        while True:
            future, task = self._tasks.get()
            try:
                future.set_result(task())
            except BaseException as error:  # noqa: BLE001 - the ring's thread raises it
                future.set_exception(error)
            del future, task


@cache
def _writing() -> _Thread:
    """The thread that writes young ids, soon done."""
    return _Thread()


@cache
def _merging() -> _Thread:
    """The thread that merges."""
    return _Thread()


_NUMBERS: Final = itertools.count()
"""Numbers of files, so that no two tasks of a process write the same one."""


class RingRuns:
    """The runs of one ring, in a folder. Used by the thread of the ring."""

    young_ids: ClassVar[int] = YOUNG_IDS
    built_ids: ClassVar[int] = BUILT_IDS

    def __init__(self, segments: StoredSegments, folder: Path) -> None:
        """Raises StoreFailedError if the disk refuses to create the folder."""
        self._segments = segments
        self._folder = folder
        self._may_merge = False
        """Whether the runs have changed since it was asked which are to be merged."""
        with self._writes():
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.seed = _seed(folder.parent / "seed")
        self._check = _number(self.seed)
        self._memory_bytes_max = segments.memory_bytes_max
        self._runs: list[Any] = []
        self._written: Future[_Made | None] | None = None
        self._merged: tuple[Future[_Made | None], Sequence[Any]] | None = None

    def load(self, table: Any, floor: int, following: int) -> int:
        """Attach runs to a table; return the number from which on it takes the segments itself.

        `floor` is the number of the oldest id that the ring holds, `following` that after its
        newest. Ranges of numbers that no run covers are read from the segments.
        """
        covered = floor
        for run in self._opened(floor, following):
            if run.end <= covered:
                self._delete(run)
                continue
            covered = self._build(table, covered, run.first)
            self._runs.append(run)
            covered = run.end
        if following - covered > self.young_ids:
            covered = self._build(table, covered, following)
        self._attach(table, covered)
        return covered

    def advance(self, table: Any, floor: int) -> None:
        """Take over what the threads have made, and have them make what is due.

        Call it when a commit was applied. Raises StoreFailedError when the disk refuses a write,
        StoreCorruptError for a run that became damaged.
        """
        self._take_over(table, floor)
        young, end = table.young()
        if self._written is None and end - young >= self.young_ids:
            if end <= floor:  # all of them are evicted
                self._attach(table, end)
            else:
                self._write(young, table.ids(), self._mark(end - 1))
        if self._merged is None and self._may_merge:
            due = to_merge(self._spans(), self.young_ids)
            self._may_merge = due is not None
            if due is not None:
                self._merge(tuple(self._runs[due]), floor)

    def _take_over(self, table: Any, floor: int) -> None:
        young, _ = table.young()
        if self._written is not None and self._written.done():
            made, self._written = self._result(self._written), None
            self._runs.append(self._placed(made))
            self._attach(table, made.run.end)
        elif self._merged is not None and self._merged[0].done():
            (future, parts), self._merged = self._merged, None
            made = self._result(future)
            at = self._runs.index(parts[0])
            self._runs[at : at + len(parts)] = [self._placed(made)]
            self._attach(table, young)
            for run in parts:
                if self._name(run) != self._name(made.run):
                    self._delete(run)
        elif self._runs and self._runs[0].end <= floor and not self._is_merged(self._runs[0]):
            self._delete(self._runs.pop(0))
            self._attach(table, young)

    def _write(self, first: int, ids: bytes, mark: int) -> None:
        path, check = self._path(), self._check
        self._written = _writing().submit(lambda: _written(path, first, ids, check, mark))

    def _merge(self, parts: Sequence[Any], floor: int) -> None:
        path, check, owner = self._path(), self._check, weakref.ref(self)
        self._merged = _merging().submit(lambda: _merged(path, parts, floor, check, owner)), parts

    def settle(self, table: Any, floor: int) -> None:
        """Wait until nothing is due: for tests and measurements."""
        while True:
            self.advance(table, floor)
            if self._written is not None:
                self._written.exception()
            elif self._merged is not None:
                self._merged[0].exception()
            else:
                return

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    @property
    def memory_bytes(self) -> int:
        """Memory of the filters and directories."""
        return sum(run.memory_bytes for run in self._runs)

    def shrink(self) -> bool:
        """Have no filter in memory from now on; return False if none was."""
        before, self._memory_bytes_max = self.memory_bytes, 0
        for run in self._runs:
            run.map(False)  # noqa: FBT003 - the extension takes positions only
        return self.memory_bytes < before

    def _is_merged(self, run: Any) -> bool:
        return self._merged is not None and run in self._merged[1]

    def _spans(self) -> list[int]:
        return [run.end - run.first for run in self._runs]

    def _attach(self, table: Any, young: int) -> None:
        """Have a table use the runs, with the filters of the newest in memory while they fit."""
        left = self._memory_bytes_max - table.memory_bytes
        for run in reversed(self._runs):
            left -= run.filter_bytes
            run.map(left >= 0)
        table.attach(tuple(self._runs), young)
        self._may_merge = True

    def _opened(self, floor: int, following: int) -> list[Any]:
        """Return the runs of the folder that are of this ring, in order; delete all else."""
        found = []
        with self._writes():
            paths = list(self._folder.iterdir()) if self._folder.is_dir() else []
        for path in paths:
            run = self._read(path) if path.suffix == _SUFFIX else None
            if run is not None and self._is_of_ring(run, floor, following):
                found.append(run)
            else:
                _unlink(path)
        return sorted(found, key=lambda run: (run.first, -run.end))

    def _is_of_ring(self, run: Any, floor: int, following: int) -> bool:
        return floor < run.end <= following and bool(run.mark == self._mark(run.end - 1))

    def _read(self, path: Path) -> Any:
        """Open a run; return None if it is damaged."""
        with self._writes(), suppress(ValueError):
            return _module().Run(str(path), self._check)
        return None

    def _build(self, table: Any, start: int, end: int) -> int:
        """Make runs of a range of numbers from the segments; return where they end."""
        for first, ids, last in self._hashed(table, start, end):
            made = _written(self._path(), first, ids, self._check, self._mark_of(last))
            self._runs.append(self._placed(made))
        return max(start, end)

    def _hashed(
        self, table: Any, start: int, end: int
    ) -> Iterator[tuple[int, bytes, tuple[bytes, int]]]:
        """Yield ranges of numbers: the first, the ids, and the last with its segment."""
        if start >= end:
            return
        first, ids, last = start, bytearray(), (b"", start)
        for segment_key, value in self._segments.entries(self._segments.first_with(start)):
            begin = first_of(segment_key)
            if begin >= end:
                break
            try:
                part = memoryview(table.hashed(value))
            except (ValueError, OverflowError) as error:
                raise self._segments.damage(error) from error
            following = first + len(ids) // _ID_BYTES
            if begin > following:  # a batch longer than the ring has skipped numbers
                first, ids = begin, bytearray()
                following = begin
            taken = part[(following - begin) * _ID_BYTES : (end - begin) * _ID_BYTES]
            ids += taken
            if taken:
                last = value, following + len(taken) // _ID_BYTES - 1
            if len(ids) >= self.built_ids * _ID_BYTES:
                yield first, bytes(ids), last
                first, ids = last[1] + 1, bytearray()
        if ids:
            yield first, bytes(ids), last

    def _mark(self, number: int) -> int:
        """Return a number that another ring of the same name does not have here."""
        return self._mark_of((self._segments.with_number(number), number))

    def _mark_of(self, last: tuple[bytes, int]) -> int:
        return _mark_of(self._segments.row(*last))

    def _path(self) -> Path:
        """Return the preliminary name of a new run."""
        with self._writes():
            self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder / f"{os.getpid()}-{next(_NUMBERS)}.new"

    def _placed(self, made: _Made) -> Any:
        """Give a new run its name, under which the next start finds it."""
        with self._writes():
            made.path.rename(self._name(made.run))
        return made.run

    def _name(self, run: Any) -> Path:
        return self._folder / _name(run.first, run.end)

    def _delete(self, run: Any) -> None:
        _unlink(self._name(run))

    def _result(self, future: "Future[_Made | None]") -> _Made:
        with self._writes():
            made = future.result()
            assert made is not None  # it is asked by the one that wants it
            return made

    @contextmanager
    def _writes(self) -> Iterator[None]:
        """Turn errors of the disk, and of damaged runs, into those of a store."""
        try:
            yield
        except (OSError, ValueError) as error:
            if disk_fault_of(error) is None:
                raise self._segments.damage(error) from error
            raise StoreFailedError(str(error)) from error


class _Begun:
    """The ids of an address that were replayed since its last run."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.ids = bytearray()
        self.last = b""
        """The last segment."""

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + len(self.ids) // _ID_BYTES


class ReplayedRuns:
    """Runs that are written while a changelog is replayed, so that no record waits for them.

    Addresses are replayed at the same time, and few of them may be large; what was not written is
    made when an address is loaded. A standby copy is replayed for as long as others write, so runs
    whose ids are all evicted are deleted as well.
    """

    ids_max: ClassVar[int] = 4 * BUILT_IDS
    """Ids of all addresses that are in no run yet, in all replays of the process: 64 MiB."""

    def __init__(self, store: Store, kind: bytes, *, is_window: bool) -> None:
        """Raises StoreFailedError if the disk refuses to create the folder."""
        assert store.derived is not None  # the caller has asked
        self._store, self._kind = store, kind
        try:
            store.derived.mkdir(mode=0o700, parents=True, exist_ok=True)
            seed = _seed(store.derived / "seed")
        except OSError as error:
            raise StoreFailedError(str(error)) from error
        self._check = _number(seed)
        self._table = _module().Table(True, True, is_window, seed)  # noqa: FBT003 - as above
        self._begun: OrderedDict[bytes, _Begun] = OrderedDict()
        """By the beginning of the keys of an address, the one seen last at the end."""
        self._count = 0
        self._written: list[Future[_Made | None]] = []
        _REPLAYED.add(self)

    def take(self, edits: Sequence[Edit]) -> None:
        """See the next edits, which the store has applied."""
        for key, value in edits:
            if value is not None and key.startswith(self._kind):
                self._add(key[:-_NUMBER_BYTES], first_of(key), value)

    def _add(self, begin: bytes, first: int, value: bytes) -> None:
        with suppress(OverflowError):  # loading the address refuses it
            hashed = self._table.hashed(value)
            if not hashed:  # a new size alone, whose key the next segment takes
                return
            begun = self._begun.get(begin)
            if begun is None or not begun.first <= first <= begun.end:
                self._write(begin)
                begun = self._begun[begin] = _Begun(first)
            kept = (first - begun.first) * _ID_BYTES  # a segment may be written again
            self._count += (kept + len(hashed) - len(begun.ids)) // _ID_BYTES
            begun.ids[kept:] = hashed
            begun.last = value
            self._begun.move_to_end(begin)
            if len(begun.ids) >= RingRuns.built_ids * _ID_BYTES:
                self._write(begin)
            while self._count > self._share:
                self._write(next(iter(self._begun)))

    @property
    def _share(self) -> int:
        """How many ids this replay may have in no run, beside the other replays."""
        return self.ids_max // max(1, sum(each._count > 0 for each in _REPLAYED))  # noqa: SLF001

    def _write(self, begin: bytes) -> None:
        """Have a run of an address written, if it has ids for it."""
        begun = self._begun.pop(begin, None)
        if begun is None:
            return
        self._count -= begun.end - begun.first
        folder, check = folder_of(self._store, begin), self._check
        if folder is None or begun.end - begun.first < RingRuns.young_ids:
            return
        mark = _mark_of(row_of(begun.last, begun.end - 1))
        oldest = self._store.next_key(begin)
        held = first_of(oldest) if oldest is not None and oldest.startswith(begin) else begun.end

        def write() -> None:
            folder.mkdir(mode=0o700, exist_ok=True)
            path = folder / f"{os.getpid()}-{next(_NUMBERS)}.new"
            _written(path, begun.first, bytes(begun.ids), check, mark)
            path.rename(folder / _name(begun.first, begun.end))
            for run in folder.glob(f"*{_SUFFIX}"):
                if _end(run) <= held:
                    _unlink(run)

        self._written = [each for each in self._written if not each.done()]
        self._written.append(_writing().submit(write))

    def finish(self) -> None:
        """Write what is left, and wait until all is written; an error is met again when loading."""
        for begin in list(self._begun):
            self._write(begin)
        for future in self._written:
            future.exception()
        self._written.clear()


_REPLAYED: "Final[weakref.WeakSet[ReplayedRuns]]" = weakref.WeakSet()
"""All that there are in the process."""


def to_merge(spans: Sequence[int], young_ids: int) -> slice | None:
    """Return which adjacent runs are to become one, None if none are.

    `spans` are their sizes, oldest first. Of all that may be merged it takes those for which the
    least is written for each run that goes.
    """
    largest = max(sum(spans) // _LARGEST, 4 * young_ids)
    found, least = None, 0.0
    for start in range(len(spans)):
        total = longest = 0
        for count, span in enumerate(spans[start : start + _AT_ONCE], 1):
            total, longest = total + span, max(longest, span)
            if total > largest:
                break
            if count >= _MERGED and total >= _GROWTH * longest:
                cost = total / (count - 1)
                if found is None or cost < least:
                    found, least = slice(start, start + count), cost
    return found


def _name(first: int, end: int) -> str:
    return f"{first}-{end}{_SUFFIX}"


def _end(path: Path) -> int:
    """Return the number after the last id of a run, of which this is the file."""
    return int(path.stem.rpartition("-")[2])


def _mark_of(last: SegmentEntry) -> int:
    return _number(repr((last.identifier, *last.origin)).encode())


def _unlink(path: Path) -> None:
    """Delete a file of a run, if the disk lets us: the next start deletes what is left."""
    with suppress(OSError):
        path.unlink()


def _module() -> Any:
    return loaded().module


def _written(path: Path, first: int, ids: bytes, check: int, mark: int) -> _Made:
    with _deleted_unless_whole(path):
        _module().write_run(str(path), first, ids, check, mark)
        return _made(path, check)


def _merged(
    path: Path, runs: Sequence[Any], floor: int, check: int, owner: "weakref.ref[RingRuns]"
) -> _Made | None:
    """Merge runs, unless their owner is gone."""
    with _deleted_unless_whole(path):
        merge = _module().Merge(str(path), tuple(runs), floor)
        while owner() is not None:
            if merge.step(_STEP_ENTRIES):
                return _made(path, check)
    path.unlink()
    return None


def _made(path: Path, check: int) -> _Made:
    """Open a new run, and read its filter here, where nobody waits for it."""
    run = _module().Run(str(path), check)
    run.map(True)  # noqa: FBT003 - the extension takes positions only
    return _Made(run, path)


@contextmanager
def _deleted_unless_whole(path: Path) -> Iterator[None]:
    """Delete a file that could not be written: the disk may be full."""
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _number(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _seed(path: Path) -> bytes:
    """Return the secret of the hashes of a store; runs that were written with another are void."""
    with suppress(FileNotFoundError):
        seed = path.read_bytes()
        if len(seed) == _SEED_BYTES:
            return seed
    seed, new = os.urandom(_SEED_BYTES), path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(seed)
    new.replace(path)
    return seed
