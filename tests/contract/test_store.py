"""One suite for every `Store`, against a dict; and what a damaged disk may end in."""

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringfence_state.memory_store import MemoryStore
from ringfence_state.model import Edit, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.store import (
    Identity,
    Store,
    StoreCorruptError,
    StoreFailedError,
    StoreLockedError,
    StorePosition,
    Stores,
    StoreStats,
)
from tests.support.helpers import rows, some

SOURCE = PartitionId("orders", 3)
OTHER = PartitionId("orders", 4)
IDENTITY = Identity("cluster", "input-id", "changelog-id", 1)
DIFFERENT = Identity("cluster", "input-id", "another-id", 1)

BYTES = st.lists(st.sampled_from(b"\x00ab\xff"), max_size=3).map(bytes)
"""Few, so that keys come again, and with the first and the last of all bytes."""
EDITS = st.lists(st.builds(Edit, BYTES.map(lambda key: b"r" + key), st.none() | BYTES), max_size=8)
ENDS = [Edit(b"rb" + end, end) for end in (b"\xff", b"", b"\x00", b"\xff\xff")]
BEYOND = [Edit(b"ra", b""), Edit(b"rc", b""), Edit(b"rb\xff", None), Edit(b"never", None)]


def position(number: int, identity: Identity = IDENTITY) -> StorePosition:
    return StorePosition(identity, number, number * 2, 1_700_000_000_000 + number)


def left_in(folder: Path) -> list[str]:
    """The names in a folder of stores but those of locks, which stay."""
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


class MemoryStores:
    """Stores by partition; one that is opened again has what it had."""

    def __init__(self) -> None:
        self._stores: dict[PartitionId, MemoryStore] = {}
        self._wanted: set[PartitionId] = set()

    def open(self, source: PartitionId) -> MemoryStore:
        return self._stores.setdefault(source, MemoryStore())

    def wipe(self, source: PartitionId) -> None:
        self._stores.pop(source, None)

    def want(self, source: PartitionId) -> None:
        self._wanted.add(source)

    def is_wanted(self, source: PartitionId) -> bool:
        return source in self._wanted


@pytest.fixture(params=["memory", "rocks"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return MemoryStores() if request.param == "memory" else RocksStores(tmp_path)


def test_edits_that_fail_half_way_leave_the_store_as_it_was(tmp_path: Path) -> None:
    def torn() -> Iterator[Edit]:
        yield Edit(b"rb", b"2")
        raise InterruptedError

    store = RocksStores(tmp_path).open(SOURCE)
    store.apply([Edit(b"ra", b"1")], position(1))
    with pytest.raises(InterruptedError):
        store.apply(torn(), position(2))
    assert store.position() == position(1)
    assert list(store.scan(b"r")) == [(b"ra", b"1")]
    store.close()


def test_partitions_share_nothing_and_a_wipe_forgets_one_of_them(stores: Stores) -> None:
    for source in (SOURCE, OTHER):
        store = stores.open(source)
        store.apply([Edit(b"ra", b"%d" % source.partition)], position(1))
        store.close()
    stores.wipe(SOURCE)
    wiped, kept = stores.open(SOURCE), stores.open(OTHER)
    assert wiped.position() is None
    assert list(wiped.scan(b"")) == []
    assert list(kept.scan(b"r")) == [(b"ra", b"4")]
    wiped.close()
    kept.close()


def test_a_scan_sees_all_that_was_written_before_it_began(stores: Stores) -> None:
    store = stores.open(SOURCE)
    store.apply([Edit(b"ra", b"1"), Edit(b"rb", b"1"), Edit(b"s", b"1")], position(1))
    assert len(list(store.scan(b"r"))) == 2
    first, second = store.scan(b"r"), store.scan(b"r", b"rb")
    assert (next(first), next(second)) == ((b"ra", b"1"), (b"rb", b"1"))
    store.apply([Edit(b"ra", b"2"), Edit(b"rc", b"2")], position(2))
    assert list(first)[:1] == [(b"rb", b"1")]
    assert len(list(second)) <= 1
    for _ in range(3):
        assert list(store.scan(b"r")) == [(b"ra", b"2"), (b"rb", b"1"), (b"rc", b"2")]
    store.close()


def test_a_store_may_be_wanted_and_so_no_other(stores: Stores) -> None:
    stores.want(SOURCE)
    stores.want(SOURCE)
    assert (stores.is_wanted(SOURCE), stores.is_wanted(OTHER)) == (True, False)
    stores.open(OTHER).close()


def test_a_store_is_wanted_for_as_long_as_the_other_process_asks(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    stores.want(SOURCE)
    assert RocksStores(tmp_path).is_wanted(SOURCE)
    (file,) = tmp_path.iterdir()
    os.utime(file, (file.stat().st_atime - 5, file.stat().st_mtime - 5))
    assert not stores.is_wanted(SOURCE)


def test_what_was_replayed_is_there_after_a_close_and_before_what_is_applied(
    stores: Stores,
) -> None:
    store = stores.open(SOURCE)
    store.replay([Edit(b"ra", b"1")], position(1))
    store.replay([Edit(b"ra", None), Edit(b"rb", b"2")], position(2))
    assert (store.get(b"ra"), store.get(b"rb"), store.position()) == (None, b"2", position(2))
    store.close()
    store = stores.open(SOURCE)
    assert (dict(store.scan(b"r")), store.position()) == ({b"rb": b"2"}, position(2))
    store.replay([Edit(b"rc", b"3")], position(3))
    store.apply([Edit(b"rd", b"4")], position(4))
    store.close()
    store = stores.open(SOURCE)
    assert dict(store.scan(b"r")) == {b"rb": b"2", b"rc": b"3", b"rd": b"4"}
    store.close()


_REPLAYED_AND_KILLED: Final = """
import os, sys
from pathlib import Path
from ringfence_state.model import Edit, PartitionId
from ringfence_state.rocksdb_store import RocksStores
from tests.contract.test_store import SOURCE, position
store = RocksStores(Path(sys.argv[1])).open(SOURCE)
for number, how in enumerate(sys.argv[2], 1):
    write = store.apply if how == "a" else store.replay
    write([Edit(b"r%d" % number, bytes(1_000))] * 1, position(number))
os._exit(9)
"""


@pytest.mark.parametrize(
    ("written", "left"), [("rr", 0), ("arr", 1), ("rra", 3), ("arrarr", 4), ("ar" * 5, 9)]
)
def test_a_process_that_dies_loses_of_a_replay_what_came_last(
    tmp_path: Path, written: str, left: int
) -> None:
    subprocess.run(
        [sys.executable, "-c", _REPLAYED_AND_KILLED, str(tmp_path), written], check=False
    )
    store = RocksStores(tmp_path).open(SOURCE)
    assert [key for key, _ in store.scan(b"r")] == [b"r%d" % (n + 1) for n in range(left)]
    assert store.position() == (position(left) if left else None)
    store.close()


def test_a_wipe_of_nothing_is_no_error(stores: Stores) -> None:
    stores.wipe(SOURCE)


@settings(max_examples=60, deadline=None)
@example([ENDS, BEYOND], b"b")
@example([], b"")
@given(st.lists(EDITS, max_size=5), BYTES)
def test_a_memory_store_is_a_dict_in_order(batches: list[list[Edit]], tail: bytes) -> None:
    equals_a_dict(MemoryStores(), batches, b"r" + tail)


@settings(max_examples=24, deadline=None)
@example([ENDS, BEYOND], b"b")
@example([], b"")
@given(st.lists(EDITS, max_size=5), BYTES)
def test_a_rocks_store_is_a_dict_in_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Edit]], tail: bytes
) -> None:
    equals_a_dict(RocksStores(tmp_path_factory.mktemp("rocks")), batches, b"r" + tail)


def equals_a_dict(stores: Stores, batches: Sequence[Sequence[Edit]], sought: bytes) -> None:
    """As it was written, and when it is opened again; the last batch may be of another log."""
    oracle: dict[bytes, bytes] = {}
    store, last = stores.open(SOURCE), None
    for number, edits in enumerate(batches):
        last = position(number, DIFFERENT if number == len(batches) - 1 else IDENTITY)
        store.apply(edits, last)
        for key, value in edits:
            oracle.pop(key, None)
            if value is not None:
                oracle[key] = value
    for _ in range(2):
        assert list(store.scan(b"r")) == sorted(oracle.items())
        expected = [entry for entry in sorted(oracle.items()) if entry[0].startswith(sought)]
        assert list(store.scan(sought)) == expected
        assert store.next_key(sought) == min((k for k in oracle if k >= sought), default=None)
        assert store.previous_key(sought) == max((k for k in oracle if k < sought), default=None)
        assert store.get(sought) == oracle.get(sought)
        assert store.position() == last
        store.close()
        store = stores.open(SOURCE)
    store.close()


# What a damaged disk may end in: an error that names the damage, or a store that is behind.

BATCHES = 4
KEYS_PER_BATCH = 200
FILES = ["*.sst", "MANIFEST-*", "CURRENT", "*.json"]


def value_of(number: int) -> bytes:
    return b"%06d" % number * 20


def filled(stores: RocksStores) -> None:
    """Two generations: what a former close left in tables, and what is in the log."""
    for batch in range(BATCHES):
        store = stores.open(SOURCE)
        first = batch * KEYS_PER_BATCH
        numbers = range(first, first + KEYS_PER_BATCH)
        store.apply([Edit(b"r%06d" % n, value_of(n)) for n in numbers], position(batch + 1))
        store.close()


def cut(content: bytes, place: int) -> bytes:
    return content[:place]


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x40]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: cut(content, 0),
    "halved": lambda content: cut(content, len(content) // 2),
    "one byte short": lambda content: cut(content, -1),
    "flipped at the start": lambda content: flipped(content, 0),
    "flipped in the middle": lambda content: flipped(content, len(content) // 2),
}


def is_whole_or_behind(stores: RocksStores) -> None:
    """Every batch up to the position is there and right, and nothing beyond it."""
    store = stores.open(SOURCE)
    try:
        place = store.position()
        batches = 0 if place is None else place.input_next
        assert place is None or place == position(batches)
        assert batches <= BATCHES
        expected = [(b"r%06d" % n, value_of(n)) for n in range(batches * KEYS_PER_BATCH)]
        assert list(store.scan(b"r")) == expected
    finally:
        store.close()


@pytest.mark.row(18)
@pytest.mark.parametrize("damage", [*DAMAGES, "lost"])
@pytest.mark.parametrize("pattern", FILES)
def test_a_damaged_file_ends_in_a_store_error_or_in_a_store_that_is_behind(
    tmp_path: Path, pattern: str, damage: str
) -> None:
    stores = RocksStores(tmp_path)
    filled(stores)
    files = sorted(path for path in tmp_path.rglob(pattern) if path.stat().st_size)
    if damage == "lost":
        files[-1].unlink()
    else:
        files[-1].write_bytes(DAMAGES[damage](files[-1].read_bytes()))
    with suppress(StoreCorruptError):
        is_whole_or_behind(stores)
    stores.wipe(SOURCE)
    store = stores.open(SOURCE)
    assert store.position() is None
    store.apply([Edit(b"ra", b"1")], position(1))
    store.close()


KEYS: Final = [b"r%06d" % number for number in range(BATCHES * KEYS_PER_BATCH)]


@rows(
    "read",
    {
        "scan": lambda store: list(store.scan(b"r")),
        "get": lambda store: list(map(store.get, KEYS)),
        "next_key": lambda store: list(map(store.next_key, KEYS)),
        "previous_key": lambda store: list(map(store.previous_key, KEYS)),
    },
)
def test_reading_a_damaged_block_raises_an_error(
    tmp_path: Path, read: Callable[[Store], object]
) -> None:
    stores = RocksStores(tmp_path)
    store = stores.open(SOURCE)
    store.apply([Edit(key, value_of(number)) for number, key in enumerate(KEYS)], position(1))
    store.db.flush()
    store.close()
    (file,) = tmp_path.rglob("*.sst")
    file.write_bytes(flipped(file.read_bytes(), file.stat().st_size // 2))
    store = stores.open(SOURCE)
    with pytest.raises(StoreCorruptError, match="orders-3 is damaged"):
        read(store)
    store.close()


class Killed(BaseException):
    """The process ends here."""


def with_two_logs(folder: Path) -> None:
    """A store as it lies on the disk while its older log is not in tables yet."""
    live = RocksStores(folder / "live")
    live.options.set_write_buffer_size(64 * 1024)
    live.options.set_max_write_buffer_number(4)
    live.options.set_min_write_buffer_number_to_merge(3)
    store, number = live.open(SOURCE), 0
    while len([*folder.rglob("*.log")]) < 2:
        store.apply([Edit(b"r%06d" % number, value_of(number))], position(number))
        number += 1
    shutil.copytree(folder / "live", folder / "stores")
    store.close()


@pytest.mark.row(9)
@pytest.mark.parametrize("deleted", range(4))
def test_a_wipe_that_is_killed_leaves_nothing_that_is_opened_as_a_store(
    tmp_path: Path, deleted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path) -> None:
        for file in sorted(folder.iterdir())[:deleted]:
            file.unlink()
        raise Killed

    with_two_logs(tmp_path)
    folder = tmp_path / "stores"
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            RocksStores(folder).wipe(SOURCE)
    store = RocksStores(folder).open(SOURCE)
    assert store.position() is None
    assert list(store.scan(b"")) == []
    store.close()
    assert len(left_in(folder)) == 1, "nothing of the other is left"


def test_a_wipe_after_one_that_was_killed_deletes_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_folder: Path) -> None:
        raise Killed

    stores = RocksStores(tmp_path)
    filled(stores)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            stores.wipe(SOURCE)
    stores.wipe(SOURCE)
    assert left_in(tmp_path) == []
    stores.open(SOURCE).close()


@pytest.mark.row(18)
def test_a_torn_or_rotten_write_ahead_log_leaves_the_store_behind_by_whole_batches(
    tmp_path: Path,
) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    store = RocksStores(live).open(SOURCE)
    for batch in range(BATCHES):
        first = batch * KEYS_PER_BATCH
        numbers = range(first, first + KEYS_PER_BATCH)
        store.apply([Edit(b"r%06d" % n, value_of(n)) for n in numbers], position(batch + 1))
    files = {p.relative_to(live): p.read_bytes() for p in live.rglob("*") if p.is_file()}
    store.close()
    (log,) = [name for name in files if name.suffix == ".log" and files[name]]
    size = len(files[log])
    for place in range(0, size, size // 8):
        for damage in (flipped, cut):
            folder = copy / f"{place}-{damage.__name__}"
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                damaged_log = damage(content, place) if name == log else content
                (folder / name).write_bytes(damaged_log)
            is_whole_or_behind(RocksStores(folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_the_disks_fault(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreFailedError):
        RocksStores(tmp_path).open(SOURCE)
    tmp_path.chmod(0o700)


def test_a_write_that_the_disk_refuses_is_its_fault_and_changes_nothing(tmp_path: Path) -> None:
    store = RocksStores(tmp_path).open(SOURCE)
    store.apply([Edit(b"ra", b"1")], position(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        with pytest.raises(StoreFailedError, match="File too large"):
            store.apply([Edit(b"ra", b"2")], position(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (store.position(), store.get(b"ra")) == (position(1), b"1")
    store.close()


LOCKS: Final = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
input()
"""


def test_a_store_that_another_process_has_open_is_held_and_not_damaged(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    stores.open(SOURCE).close()
    command = [sys.executable, "-c", LOCKS, str(tmp_path / "orders-3" / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        some(other.stdout).readline()
        with pytest.raises(StoreLockedError, match="orders-3"):
            stores.open(SOURCE)
        other.communicate(b"\n")
    stores.open(SOURCE).close()


def test_a_store_tells_what_it_takes_and_a_closed_one_nothing(tmp_path: Path) -> None:
    stores = RocksStores(tmp_path)
    stores.options.set_level_zero_file_num_compaction_trigger(1)
    stores.options.set_level_zero_slowdown_writes_trigger(1)
    store = stores.open(SOURCE)
    new = store.figures()
    store.apply([Edit(b"r%06d" % n, value_of(n)) for n in range(200)], position(1))
    written = store.figures()
    files = (tmp_path / "orders-3").iterdir()
    assert written.disk_bytes == sum(file.stat().st_size for file in files)
    store.db.flush()
    kept = store.figures()
    assert new[:1] + new[3:4] + new[5:] == (0, 0, 0, 0)
    assert written.keys == 201, "the position is one"
    assert new.memory_bytes < written.memory_bytes > kept.memory_bytes
    assert new.cache_bytes < kept.cache_bytes
    assert (written.table_bytes, written.stalls) == (0, 0)
    assert kept.table_bytes > 0 < kept.stalls
    other = stores.open(OTHER)
    assert list(store.scan(b"s")) == []
    assert store.figures().cache_bytes == other.figures().cache_bytes > 0, "one for all"
    for each in (other, store):
        each.close()
    stores.wipe(SOURCE)
    stores.wipe(OTHER)
    assert left_in(tmp_path) == []
    assert store.figures() == StoreStats(0)


def test_a_folder_that_cannot_be_made_is_the_disks_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    stores = RocksStores(tmp_path / "file")
    for refused in (stores.open, stores.wipe):
        with pytest.raises(StoreFailedError, match=r"file/orders-3\.(lock|wiped): "):
            refused(SOURCE)
    (tmp_path / "orders-3").write_text("")
    with pytest.raises(StoreFailedError, match="/orders-3: "):
        RocksStores(tmp_path).open(SOURCE)


def test_a_store_that_the_disk_does_not_let_go_is_the_disks_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_path: Path, _target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    stores = RocksStores(tmp_path)
    stores.open(SOURCE).close()
    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(StoreFailedError, match=r"/orders-3: .*Read-only file system"):
        stores.wipe(SOURCE)


@pytest.mark.parametrize("length", [242, 249])
def test_a_store_of_the_longest_topic_opens_and_one_that_was_being_wiped_is_deleted(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, stores = PartitionId("t" * length, 10_000), RocksStores(tmp_path)
    store = stores.open(source)
    store.apply([Edit(b"ra", b"1")], position(1))
    store.close()
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda _path: None)
        stores.wipe(source)
    store = stores.open(source)
    assert store.position() is None
    assert left_in(tmp_path) == [f"{source.topic}-10000"]
    store.close()
