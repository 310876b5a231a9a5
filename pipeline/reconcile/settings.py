"""Settings: how addresses remember now, and remembered before, as far as it was set over REST.

What was accepted under a smaller ring may have gone out again by right, so a size is worth nothing
without its time. Pure.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from pipeline.served import Records, overlaid, revisions_of
from service.addresses import AddressBook, AddressSettings
from service.caches import BRIDGE, settings_of
from service.config import Config
from service.revisions import in_force

_UNLIMITED: Final = 2**62
_IN_FORCE_WITHIN_MS: Final = 60_000
"""How long an instance may decide by the settings before those that were written."""


class Earlier(NamedTuple):
    """How addresses remembered once."""

    until_ms: int
    book: AddressBook | None
    """None where nobody knows any more."""


UNKNOWN: Final = Earlier(_UNLIMITED, None)
"""Where nothing is known of any time."""


class Former(NamedTuple):
    """How an address remembered until a time: at least, and at most, so many for so long."""

    until_ms: int
    least: int
    most: int
    window_ms: int


class Memory(NamedTuple):
    """How an address remembers, as far as it can be judged from outside."""

    strategy: str
    size: int
    """Of so many that were accepted last none may be accepted again."""
    window_ms: int
    """And none within this time."""
    strict: bool
    """Whether nothing is ever forgotten before."""
    silent: bool
    """Whether a duplicate may leave no trace."""
    former: tuple[Former, ...] = ()
    """Where it was otherwise once."""


def earlier_of(config: Config, records: Records) -> tuple[Earlier, ...]:
    """How addresses remembered before what was set over REST changed it, the newest first."""
    documents, newer = list(revisions_of(records)), overlaid(config, records).addresses
    found: list[Earlier] = []
    for at, document in enumerate(documents, 1):
        before = documents[at:]
        is_known = before or document.number == 1
        book = in_force(config, before)[0].config.addresses if is_known else None
        if book is None or book.patterns != newer.patterns:
            found.append(Earlier(document.time_ms + _IN_FORCE_WITHIN_MS, book))
        newer = newer if book is None else book
    return tuple(found)


def memory_of(
    book: AddressBook, address: str, earlier: Iterable[Earlier] = (), *, bridged: bool = False
) -> Memory:
    """How the cache of an address remembers, or the one for what was stamped on its way."""
    cache = BRIDGE + address if bridged else address
    now = _memory(settings_of(book, cache))
    memories = [
        (until_ms, None if book is None else _memory(settings_of(book, cache)))
        for until_ms, book in earlier
    ]
    return now._replace(
        silent=now.silent or any(memory and memory.silent for _, memory in memories),
        former=tuple(
            _former(until_ms, memory, now)
            for until_ms, memory in memories
            if memory is None or memory._replace(silent=now.silent) != now
        ),
    )


def _memory(settings: AddressSettings) -> Memory:
    match settings.strategy:
        case "window":
            size, window_ms = settings.window_size, settings.window_ms
        case "sequence" | "ordered":
            size, window_ms = _UNLIMITED, _UNLIMITED
        case _:
            size, window_ms = settings.capacity, _UNLIMITED
    silent = settings.on_duplicate == "drop" or settings.dead_letter_audit
    return Memory(_word(settings), size, window_ms, settings.persist_id_cache, silent)


def _former(until_ms: int, memory: Memory | None, now: Memory) -> Former:
    if memory is None or (memory.strategy, memory.strict) != (now.strategy, now.strict):
        # What was remembered then was forgotten since.
        return Former(until_ms, 0, _UNLIMITED, 0)
    return Former(until_ms, memory.size, memory.size, memory.window_ms)


def _word(settings: AddressSettings) -> str:
    return "ring" if settings.strategy == "off" else settings.strategy
