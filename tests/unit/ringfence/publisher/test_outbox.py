"""The publish store: what it keeps over a death, and how numbers are given."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.publisher.errors import (
    PublishGapError,
    StoreError,
    StoreFullError,
    StoreHeldError,
)
from ringfence_client.publisher.message import Message, numbered, row_of
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner
from ringfence_client.publisher.reserve import Reserve
from tests.support.repository import CHECKOUT

OWNER = OutboxOwner("p", "orders", "orders")
ROOM = OutboxLimits(1000, 100_000)
NOW_MS = 7
FIRST = NOW_MS * 10**6


OPEN: list[Outbox] = []


@pytest.fixture(autouse=True)
def _no_store_is_left() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def opened(
    folder: Path, owner: OutboxOwner = OWNER, limits: OutboxLimits = ROOM, now_ms: int = 0
) -> Outbox:
    OPEN.append(Outbox(str(folder / "p.store"), owner, limits, now_ms))
    return OPEN[-1]


def plain(*values: bytes) -> list[Message]:
    return [Message(value, None, (), 1) for value in values]


def held(store: Outbox) -> list[tuple[int, bytes | None]]:
    return [(number, each.value) for number, each in store.after(0, 1000, 10**6)]


def stored_to(folder: Path, number: int) -> Outbox:
    """A store whose numbers begin with 1, and which was acknowledged up to this one."""
    store = opened(folder)
    store.append(plain(*[b"old"] * number))
    store.mark_sent(number)
    store.discard(number)
    return store


def test_numbers_of_a_new_store_begin_with_the_time(tmp_path: Path) -> None:
    store = opened(tmp_path, now_ms=NOW_MS)
    assert store.append(plain(b"a", b"b")) == range(FIRST + 1, FIRST + 3)


def test_an_old_store_goes_on_with_its_numbers_whatever_the_clock_says(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 3)
    store.close()
    again = opened(tmp_path, now_ms=NOW_MS)
    assert again.append(plain(b"a")) == range(4, 5)


def test_what_append_returned_for_is_there_after_a_kill(tmp_path: Path) -> None:
    program = """
        import sys
        from ringfence_client.publisher.message import Message
        from ringfence_client.publisher.outbox import OutboxOwner
        from ringfence_client.publisher.outbox import Outbox, OutboxLimits
        owner = OutboxOwner("p", "orders", "orders")
        store = Outbox(sys.argv[1], owner, OutboxLimits(10**9, 10**9), 0)
        while True:
            (number,) = store.append([Message(b"v", None, (), 1)])
            print(number, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "p.store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(300)]
        process.kill()
        told += [int(line) for line in process.stdout if line.endswith("\n")]
    store = opened(tmp_path, limits=OutboxLimits(10**9, 10**9))
    assert [number for number, _ in store.after(0, 10**6, 10**9)][: len(told)] == told
    assert store.pending - len(told) in {0, 1}


def test_a_second_holder_is_refused_and_the_next_one_gets_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(StoreHeldError, match="open in another publisher"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_another_process_is_refused(tmp_path: Path) -> None:
    opened(tmp_path)
    program = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0)"
        ".execute('SELECT * FROM standing')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "p.store")]
    refused = subprocess.run(command, check=False, capture_output=True)
    assert b"locked" in refused.stderr


@pytest.mark.parametrize(
    "other",
    [
        OutboxOwner("q", "orders", "orders"),
        OutboxOwner("p", "x", "orders"),
        OutboxOwner("p", "orders", "x"),
    ],
)
def test_a_store_belongs_to_one_publisher_of_one_address(
    tmp_path: Path, other: OutboxOwner
) -> None:
    opened(tmp_path).close()
    with pytest.raises(StoreError, match="belongs to publisher p"):
        opened(tmp_path, other)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "p.store").write_bytes(b"not a database, but long enough to be read as one" * 99)
    with pytest.raises(StoreError, match="cannot be used"):
        opened(tmp_path)
    (tmp_path / "p.store").unlink()
    with sqlite3.connect(tmp_path / "p.store") as file:
        file.execute("CREATE TABLE cats (name TEXT)")
    file.close()
    with pytest.raises(StoreError, match="not a publisher's store"):
        opened(tmp_path)


def test_a_full_store_says_so_takes_nothing_and_has_room_again_after_an_ack(
    tmp_path: Path,
) -> None:
    store = opened(tmp_path, limits=OutboxLimits(3, 10))
    store.append(plain(b"a", b"b"))
    with pytest.raises(StoreFullError, match="holds 2 messages"):
        store.append(plain(b"c", b"d"))
    with pytest.raises(StoreFullError, match="holds 2 bytes"):
        store.append(plain(b"x" * 9))
    assert held(store) == [(1, b"a"), (2, b"b")]
    store.mark_sent(2)
    store.discard(1)
    assert store.append(plain(b"c", b"d")) == range(3, 5)


def test_a_store_that_is_opened_again_knows_how_full_it_is(tmp_path: Path) -> None:
    store = opened(tmp_path, limits=OutboxLimits(3, 10))
    store.append(plain(b"a", b"bb"))
    store.close()
    again = opened(tmp_path, limits=OutboxLimits(3, 10))
    assert again.pending == 2
    with pytest.raises(StoreFullError, match="holds 3 bytes"):
        again.append(plain(b"x" * 8))


def test_case_59_a_server_that_knows_less_than_was_acknowledged_is_a_gap(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 50)
    store.append(plain(b"a"))
    with pytest.raises(PublishGapError, match="up to 50, and the service remembers 40"):
        store.settle(40, gap_allowed=False)
    assert held(store) == [(51, b"a")]
    store.settle(40, gap_allowed=True)
    assert held(store) == [(51, b"a")]
    store.settle(40, gap_allowed=False)  # the gap was reported, and accepted


def test_case_59_a_server_that_knows_more_empties_the_store_up_to_there(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 50)
    store.append(plain(*[b"%d" % number for number in range(51, 63)]))
    store.mark_sent(62)
    store.settle(60, gap_allowed=False)
    assert held(store) == [(61, b"61"), (62, b"62")]
    store.discard(62)
    assert store.append(plain(b"next")) == range(63, 64)


def test_case_59_an_empty_store_continues_above_the_server(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 50)
    store.settle(60, gap_allowed=False)
    assert store.append(plain(b"next")) == range(61, 62)


def test_what_was_never_sent_is_renumbered_above_the_server_and_keeps_its_order(
    tmp_path: Path,
) -> None:
    store = stored_to(tmp_path, 50)
    store.append(plain(b"sent", b"a", b"b", b"c"))
    store.mark_sent(51)
    store.settle(53, gap_allowed=False)
    assert held(store) == [(54, b"a"), (55, b"b"), (56, b"c")]
    assert store.append(plain(b"d")) == range(57, 58)


def test_what_may_have_been_sent_keeps_its_number(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 50)
    store.append(plain(b"a", b"b", b"c"))
    store.mark_sent(53)
    store.settle(51, gap_allowed=False)
    assert held(store) == [(52, b"b"), (53, b"c")]


def test_an_older_acknowledgement_changes_nothing(tmp_path: Path) -> None:
    store = stored_to(tmp_path, 50)
    store.append(plain(b"a"))
    store.discard(49)
    assert (store.pending, store.progress.acknowledged) == (1, 50)


def test_a_store_is_read_in_portions_by_count_and_by_bytes(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(plain(b"aaaa", b"bbbb", b"cccc"))
    assert [number for number, _ in store.after(0, 2, 100)] == [1, 2]
    assert [number for number, _ in store.after(1, 10, 8)] == [2, 3]
    assert [number for number, _ in store.after(0, 10, 1)] == [1]


def test_a_partition_is_kept_for_the_life_of_a_store(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.keep_partition(3)
    store.close()
    again = opened(tmp_path)
    again.keep_partition(3)
    with pytest.raises(StoreError, match="keep partition=3"):
        again.keep_partition(4)


def test_no_other_user_reads_what_it_keeps(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        opened(tmp_path).append(plain(b"secret"))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


def test_a_failure_in_the_middle_leaves_memory_as_the_file_is(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.append(plain(b"a"))
    with pytest.raises(OverflowError):
        store.append([Message(b"b", None, (), 1), Message(b"c", None, (), 2**70)])
    assert (store.pending, store.last_number, held(store)) == (1, 1, [(1, b"a")])
    assert store.append(plain(b"d")) == range(2, 3)


def test_a_copy_of_the_files_at_any_time_opens_as_after_a_kill(tmp_path: Path) -> None:
    store = opened(tmp_path)
    (tmp_path / "copy").mkdir()
    for number in range(1, 6):
        store.append(plain(b"%d" % number))
        for file in tmp_path.glob("p.store*"):
            shutil.copy(file, tmp_path / "copy")
        copy = opened(tmp_path / "copy")
        assert [each for each, _ in held(copy)] == list(range(1, number + 1))
        copy.close()


BYTES = st.none() | st.binary(max_size=5)


@given(BYTES, BYTES, st.lists(st.tuples(st.text(max_size=3), BYTES)).map(tuple), st.integers(0))
def test_a_message_comes_back_from_its_row_as_it_was(
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_ms: int,
) -> None:
    message = Message(value, key, headers, timestamp_ms)
    row = row_of(5, message)
    assert numbered(*row[:-1]) == (5, message)
    assert row[-1] == message.bytes


ON_A_FULL_DISK = """
import sys
from pathlib import Path
from ringfence_client.publisher.errors import StoreError, StoreFullError
from ringfence_client.publisher.message import Message
from ringfence_client.publisher.outbox import Outbox, OutboxLimits, OutboxOwner

folder = Path(sys.argv[1])

def opened():
    owner, limits = OutboxOwner("p", "orders", "orders"), OutboxLimits(10**6, 1 << 24)
    return Outbox(str(folder / "p.store"), owner, limits, 0)

def fill(store):
    kinds = []
    for _ in range(2):  # the second is refused without a transaction
        try:
            while True:
                store.append([Message(bytes(5_000), None, (), 1)])
        except StoreError as error:
            kinds.append(type(error).__name__)
    return kinds

store, rounds = opened(), []
for _ in range(5):
    kinds = fill(store)
    (folder / "ballast").touch()
    try:
        with (folder / "ballast").open("ab", buffering=0) as ballast:
            for size in (4096, 1):
                while ballast.write(bytes(size)):
                    pass
    except OSError:
        pass
    first, last = store.last_number - store.pending + 1, store.last_number
    store.mark_sent(last)
    store.discard(first + store.pending // 2)
    rounds.append((kinds, store.pending > 0))
numbers = [each.number for each in store.after(0, 10**6, 10**9)]
print(set(map(str, rounds)))
store.discard(last)
store.append([Message(b"a", None, (), 1)])
store.close()
again = opened()
print(numbers == list(range(numbers[0], last + 1)), again.pending, again.last_number == last + 1)
"""


def test_a_full_disk_stops_no_message_from_being_sent_and_deleted(tmp_path: Path) -> None:
    namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not permitted: no user namespaces here")
    mounted = 'mount -t tmpfs -o size=20m none "$0" && exec "$@"'
    program = [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)]
    done = subprocess.run(
        [*namespace, "sh", "-c", mounted, str(tmp_path), *program],
        check=False,
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        timeout=60,
    )
    full = "{\"(['StoreFullError', 'StoreFullError'], True)\"}"
    assert (done.stdout, done.stderr) == (f"{full}\nTrue 1 True\n", "")


def test_a_reserve_is_created_with_the_store_and_given_up_once(tmp_path: Path) -> None:
    opened(tmp_path)
    file = tmp_path / "p.store-reserve"
    assert (file.stat().st_size, stat.S_IMODE(file.stat().st_mode)) == (
        256 * 1024 + 2 * ROOM.bytes_max,
        0o600,
    )
    reserve = Reserve(str(tmp_path / "p.store"), 1 << 40)
    assert file.stat().st_size == 8 * 1024 * 1024
    assert [reserve.release(), reserve.release(), file.exists()] == [True, False, False]
    assert [reserve.keep(), reserve.keep(), file.exists()] == [True, True, True]


def test_a_store_that_may_hold_more_than_its_disk_says_how_much(tmp_path: Path) -> None:
    opened(tmp_path)
    path, free = str(tmp_path / "p.store"), shutil.disk_usage(tmp_path).free
    assert OutboxLimits(1, free // 2).lacks_bytes(path) == 0
    assert OutboxLimits(1, 2 * free).lacks_bytes(path) > free // 2
