"""How addresses remember, and remembered once, follows from the file and what was set since."""

from pathlib import Path

from ringfence_pipeline.config import overlaid, read_config
from ringfence_pipeline.reconcile.scope import UNKNOWN, PastBounds, earlier_of, memory_of
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import Config
from ringfence_service.metadata.settings import SettingsHistory, SettingsOverlay


def config(tmp_path: Path, routes: str) -> Config:
    file = tmp_path / "ringfence.toml"
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "b:1"\n[service]\ngroup_id = "g"\n{routes}', "utf-8"
    )
    return read_config(file)


def test_the_strategy_of_an_address_determines_how_it_remembers() -> None:
    book = AddressBook.of(
        {
            "#": {"id_cache_size": 5},
            "w": {"strategy": "window", "window_size": 7, "window_ms": 8},
            "s": {"strategy": "sequence", "id_cache_size": 4},
            "o": {"strategy": "off", "on_duplicate": "drop"},
            "v": {"persist_id_cache": False, "dead_letter_audit": True},
        }
    )
    ring, window, sequence, off, volatile = (memory_of(book, name) for name in "rwsov")
    assert (ring.strategy, ring.size, ring.strict, ring.silent) == ("ring", 5, True, False)
    assert (window.size, window.window_ms) == (7, 8)
    assert sequence.size > 10**18
    assert (off.strategy, off.size, off.silent) == ("ring", 0, True)
    assert (volatile.strict, volatile.silent) == (False, True)
    assert memory_of(book, "s", bridged=True).size == 5


def written(*overlays: SettingsOverlay) -> list[tuple[bytes | None, bytes | None, int]]:
    """The metadata topic after these documents, each a minute after the one before."""
    revisions = SettingsHistory()
    records: list[tuple[bytes | None, bytes | None, int]] = []
    for minute, overlay in enumerate(overlays):
        for each in revisions.records(overlay, actor="me", reason="", time_ms=60_000 * minute):
            records.append((each.key, each.value, len(records)))
            revisions.take(each.key, each.value, len(records))
    return records


def sized(size: int) -> SettingsOverlay:
    return SettingsOverlay().with_address("#", {"id_cache_size": size}, in_file=True)


def test_the_sizes_before_each_change_over_rest_are_known_by_when_they_ended(
    tmp_path: Path,
) -> None:
    file = config(tmp_path, '[[routes]]\ninputs = ["b"]\n[addresses."#"]\nid_cache_size = 3\n')
    records = written(sized(5), sized(5).with_pause("b", paused=True), sized(9))
    records.insert(0, (b'["session","p"]', b"{}", 0))  # what else stands there
    memory = memory_of(overlaid(file, records).addresses, "b", earlier_of(file, records))
    assert memory.size == 9
    # A minute in which an instance may not have heard of it yet.
    size_of = {each.until_ms: (each.least, each.most) for each in memory.former}
    assert size_of == {180_000: (5, 5), 60_000: (3, 3)}


def test_what_was_set_before_the_eldest_document_that_is_kept_is_not_known(tmp_path: Path) -> None:
    file = config(tmp_path, '[[routes]]\ninputs = ["b"]\n')
    kept = written(sized(5), sized(9))[1:]
    (former,) = memory_of(overlaid(file, kept).addresses, "b", earlier_of(file, kept)).former
    assert (former.least, former.most) == (0, UNKNOWN.until_ms)


def test_what_an_address_remembered_by_another_strategy_was_forgotten() -> None:
    now = AddressBook.of({"#": {"strategy": "window", "on_duplicate": "dead_letter"}})
    once = AddressBook.of({"#": {"id_cache_size": 7, "on_duplicate": "drop"}})
    memory = memory_of(now, "b", [UNKNOWN._replace(until_ms=4, book=once)])
    assert memory.former == (PastBounds(4, 0, UNKNOWN.until_ms, 0),)
    assert memory.silent
    assert memory_of(now, "b", [UNKNOWN._replace(book=now)]).former == ()


def test_an_id_counts_as_known_for_as_long_as_its_address_cannot_be_idle() -> None:
    book = AddressBook.of(
        {
            "#": {"address_idle_ms": 1000},
            "short": {"strategy": "window", "window_ms": 900},
            "long": {"strategy": "window", "window_ms": 1100},
            "never": {"address_idle_ms": 0},
            "numbers": {"strategy": "sequence"},
        }
    )
    times = {name: memory_of(book, name).window_ms for name in ("ring", *book.patterns)}
    assert (times["ring"], times["short"], times["long"]) == (1000, 900, 1000)
    assert min(times["never"], times["numbers"]) > 10**18
    assert memory_of(book, "ring", bridged=True).window_ms == 1000
    assert memory_of(book, "numbers", bridged=True).window_ms > 10**18
