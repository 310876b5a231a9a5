"""Formats: what an earlier version wrote is read, and what a newer one wrote is refused.

`formats/<n>.json` holds what format n looks like on a changelog, `formats/<n>.store` on a disk.
Both stay as they were written: to change how something is stored, raise the format, add the
files of the new one (`python -m tests.unit.state.test_formats`), and leave older files alone.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ringfence_service.config.addresses import AddressBook
from ringfence_state import pending_group as pending_record
from ringfence_state.keys import SEGMENTS, UnknownFormatError, prefix
from ringfence_state.model import IMPORTED, Edit, Origin, PackedPositions, PartitionId
from ringfence_state.offset_metadata import OffsetMetadata, decode, encode
from ringfence_state.pending_group import GroupPosition, PendingRecord
from ringfence_state.rocksdb_store import RocksStores
from ringfence_state.segment import FORGOTTEN, FORMAT, SEGMENT_IDS_MAX, Segment, key
from ringfence_state.segment import decode as decode_run
from ringfence_state.segment import encode as encode_run
from ringfence_state.store import Identity, StorePosition
from ringfence_state.strategies import audit, ordered, sequence
from ringfence_state.strategies.per_publisher import PublisherStrategy
from ringfence_state.strategies.registry import STRATEGIES, check
from tests.support.helpers import some

FORMATS: Final = Path(__file__).parent / "formats"
ALL: Final = range(1, FORMAT + 1)
SOURCE: Final = PartitionId("orders", 3)
ADDRESS: Final = "flights.eu"
ORIGIN: Final = Origin("orders", 3, 2**40 + 7, 1_700_000_000_123)
RUN: Final = Segment(
    first=41,
    floor=7,
    capacity=50,
    sources=(SOURCE, PartitionId("\N{LATIN SMALL LETTER E WITH ACUTE}", 0)),
    ids=(b"one", b"", b"\xff\x00", b"l" * 33 + bytes(range(32))),
    source_indexes=(0, 1, 0, 0),
    offsets=(5, 2**33, 6, 7),
    times_ms=(1_700_000_000_000, 1_700_000_000_001, 1_700_000_099_000, 1_700_000_099_000),
)
CLEARED: Final = Segment(45, 45, 50, (), (), (), (), ())
SEEN: Final = RUN._replace(ids=tuple(b"\x00\x00" + each for each in RUN.ids))
WAITING: Final = (
    GroupPosition(ADDRESS, b"group \xff", 2),
    PendingRecord(3, 8, 9, 1_700_000_000_000, None, b"", [("a", b"1"), ("a", None), ("b", b"")]),
)
PUBLISHERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "audit": {"plain": audit.AuditWindow(2**50, 2**50 - 9, 0b1010000001)},
    "sequence": {
        "plain": sequence.HighestNumber(7, ORIGIN),
        "\N{HOT BEVERAGE}": sequence.HighestNumber(1, ORIGIN),
    },
    "ordered": {"plain": ordered.LastAccepted(2, 7, ORIGIN)},
}
METADATA: Final = OffsetMetadata(12, FORMAT, "in-id", "log-id", 1_700_000_000_123, 5)
POSITION: Final = StorePosition(
    Identity("cluster", "in-id", "log-id", FORMAT), 9, 13, 1_700_000_000_000
)


def written() -> Iterator[Edit]:
    """Everything that a changelog holds, as this version writes it."""
    yield Edit(key(ADDRESS, RUN.first), encode_run(RUN))
    yield Edit(key(ADDRESS, CLEARED.first), encode_run(CLEARED))
    window_key = prefix(STRATEGIES["window"].kind, ADDRESS) + key("", SEEN.first)[-8:]
    yield Edit(window_key, encode_run(SEEN))
    yield Edit(WAITING[0].key, pending_record.encode(WAITING[1]))
    for name, entries in PUBLISHERS.items():
        memory = STRATEGIES[name].load(())
        settings = AddressBook.of({"#": {"strategy": name}}).settings(ADDRESS)
        draft: Any = memory.begin(settings, PackedPositions(SOURCE))
        for publisher, entry in entries.items():
            draft._touch(publisher, entry)
        yield from draft.change(ADDRESS).edits


def changelog_of(number: int) -> list[Edit]:
    """What a changelog of this format looks like."""
    told = json.loads((FORMATS / f"{number}.json").read_text("utf-8"))
    return [Edit(bytes.fromhex(one), bytes.fromhex(other)) for one, other in told["entries"]]


def of_kind(entries: list[Edit], kind: bytes) -> list[tuple[bytes, bytes]]:
    return [(name, value or b"") for name, value in entries if name.startswith(kind)]


@pytest.mark.row(28)
@pytest.mark.parametrize("number", ALL)
def test_what_every_format_says_is_read(number: int) -> None:
    entries = changelog_of(number)
    rings = [decode_run(value) for _, value in of_kind(entries, prefix(SEGMENTS, ADDRESS))]
    assert [as_lists(run) for run in rings] == [as_lists(RUN), as_lists(CLEARED)]
    (seen,) = of_kind(entries, prefix(STRATEGIES["window"].kind, ADDRESS))
    assert as_lists(decode_run(seen[1])) == as_lists(SEEN)
    (waiting,) = of_kind(entries, pending_record.KIND)
    assert (
        pending_record.group_position_of(waiting[0]),
        pending_record.decode(waiting[1]),
    ) == WAITING
    for name, wanted in PUBLISHERS.items():
        strategy = STRATEGIES[name]
        assert isinstance(strategy, PublisherStrategy)
        found = strategy.load(of_kind(entries, prefix(strategy.kind, ADDRESS)))
        assert found.entries == wanted


@pytest.mark.parametrize("number", ALL)
def test_an_offset_committed_in_every_format_is_read(number: int) -> None:
    told = json.loads((FORMATS / f"{number}.json").read_text("utf-8"))
    assert decode(told["metadata"]) == METADATA._replace(format=number)


@pytest.mark.parametrize("number", ALL)
def test_a_store_of_every_format_is_opened_and_tells_its_format(
    number: int, tmp_path: Path
) -> None:
    shutil.copytree(FORMATS / f"{number}.store", tmp_path / f"{SOURCE.topic}-{SOURCE.partition}")
    store = RocksStores(tmp_path).open(SOURCE)
    position = some(store.position())
    assert position.identity.format == number
    if number == FORMAT:
        assert position == POSITION
        held = [entry for entry in store.scan(b"") if entry[0] != b"\x00position"]
        assert held == sorted(changelog_of(number))
    store.close()


def test_what_is_written_today_is_the_newest_of_the_kept_formats() -> None:
    assert list(written()) == changelog_of(FORMAT), "raise the format, and keep the older one"


def test_what_stands_for_something_else_in_every_format_is_what_it_was() -> None:
    assert (bytes(66), -1, 512) == (FORGOTTEN, IMPORTED, SEGMENT_IDS_MAX)


@pytest.mark.row(28)
@pytest.mark.parametrize("entry", list(written()), ids=lambda edit: repr(edit.key[:1]))
def test_a_newer_format_is_refused_by_name_whatever_kind_it_is(entry: Edit) -> None:
    assert entry.value is not None
    check(entry.key, entry.value)
    newer = bytes([FORMAT + 1]) + entry.value[1:]
    with pytest.raises(UnknownFormatError, match=f"format {FORMAT + 1}"):
        check(entry.key, newer)


def as_lists(run: Segment) -> list[Any]:
    """Columns are arrays or tuples, which differ in nothing else."""
    parts: tuple[Any, ...] = run
    return [part if part is None or isinstance(part, int) else list(part) for part in parts]


def freeze() -> None:
    """Keep what this version writes, once for each format."""
    entries = [[edit.key.hex(), (edit.value or b"").hex()] for edit in written()]
    told = {"metadata": encode(METADATA), "entries": entries}
    file, store_folder = FORMATS / f"{FORMAT}.json", FORMATS / f"{FORMAT}.store"
    assert not file.exists(), f"{file} is kept as it is"
    file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        stores = RocksStores(Path(folder))
        store = stores.open(SOURCE)
        store.apply(written(), POSITION)
        store.close()
        made = Path(folder) / f"{SOURCE.topic}-{SOURCE.partition}"
        told_only = shutil.ignore_patterns("LOG*", "LOCK", "OPTIONS-*", "IDENTITY")
        shutil.copytree(made, store_folder, ignore=told_only)


if __name__ == "__main__":
    freeze()
