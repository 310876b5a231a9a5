"""Memories: what a deciding partition remembers of an address, as the admin API takes it.

Ids become lines of an import, the oldest first, each with the place of its accepted record;
publishers become the numbers that they stand at, in the order in which they were heard of. Of an
`audit` the numbers are told too that a producer left out: they may still come.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pipeline.backfill.inputs import Inputs
from ringfence.headers import id_text
from service.addresses import AddressSettings
from service.adoption.past import Line
from service.caches import settings_of
from state.edit import Origin, Source
from state.keys import RUNS
from state.run import FORGOTTEN, ID_BYTES_MAX, decode
from state.strategies.audit import AuditRule
from state.strategies.publishers import Publishers
from state.strategies.strategy import Strategy
from state.strategies.table import RING, STRATEGIES
from state.strategies.window import Window, parts_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Number(NamedTuple):
    """A publisher that is to stand at a number."""

    publisher: str
    row: dict[str, Any]


class Shelf(NamedTuple):
    """All entries of one kind and name on one deciding partition, in the order of their keys."""

    decider: Source
    cache: str
    kind: bytes
    entries: list[tuple[bytes, bytes]]


class Memories:
    """Tells shelves; counts what no API takes."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._book = inputs.book
        self.left_out: dict[str, int] = {}
        """How many are not told, by the reason."""

    def tell(self, shelf: Shelf) -> Iterator[Line | Number]:
        """What one shelf holds."""
        settings = settings_of(self._book, shelf.cache)
        strategy = STRATEGIES.get(settings.strategy, RING)
        assert strategy.kind == shelf.kind  # the settings are those that it was made with
        if shelf.kind == RUNS:
            yield from self._ring(shelf, settings)
        elif shelf.kind == STRATEGIES["window"].kind:
            yield from self._window(shelf, strategy)
        else:
            yield from self._numbers(shelf, strategy, settings)

    def _ring(self, shelf: Shelf, settings: AddressSettings) -> Iterator[Line]:
        runs = [decode(value) for _, value in shelf.entries]
        floor = max(runs[-1].floor, runs[-1].end - settings.capacity)
        for run in runs:
            for number in range(max(run.first, floor), run.end):
                identifier = run.ids[number - run.first]
                if identifier != FORGOTTEN:
                    yield self._line(shelf.cache, identifier, run.origin(number))

    def _window(self, shelf: Shelf, strategy: Strategy) -> Iterator[Line]:
        window = strategy.load(shelf.entries)
        assert isinstance(window, Window)  # by its kind
        for name, origin in window.ids.items():
            publisher, identifier = parts_of(name)
            if publisher:
                self._leave_out("their window keeps ids of each publisher, which are not imported")
            else:
                yield self._line(shelf.cache, identifier, origin)

    def _numbers(
        self, shelf: Shelf, strategy: Strategy, settings: AddressSettings
    ) -> Iterator[Number]:
        held = strategy.load(shelf.entries)
        assert isinstance(held, Publishers)  # by its kind
        for publisher, entry in held.entries.items():
            number, stream, source = held.rule.standing(entry)
            topic, partition = self._written(source, shelf.decider)
            row: dict[str, Any] = {
                "address": shelf.cache,
                "sequence": number,
                "stream": stream,
                "topic": topic,
                "partition": partition,
            }
            if isinstance(held.rule, AuditRule):
                row["missing"] = held.rule.missing(entry, settings)
            yield Number(publisher, row)

    def _written(self, source: Source | None, decider: Source) -> Source:
        """The partition of an input that a publisher writes; where any will do, one of them."""
        if source is None:
            is_own = self._inputs.inlet(decider) is not None
            source = decider if is_own else Source(next(iter(self._inputs.by_topic)), 0)
        return Source(self._inputs.instead_of or source.topic, source.partition)

    def _line(self, cache: str, identifier: bytes, origin: Origin) -> Line:
        row: Mapping[str, Any] = {
            "id": id_text(identifier),
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "time": (_EPOCH + timedelta(milliseconds=origin.time_ms)).isoformat(),
            "hashed": len(identifier) > ID_BYTES_MAX,
        }
        return Line(cache, dict(row))

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def shelves_of(
    pages: Iterable[tuple[Source, bytes, Iterable[tuple[bytes, bytes]]]],
) -> Iterator[Shelf]:
    """Shelves from their pages, which come shelf by shelf."""
    decider, name, entries = Source("", 0), b"", list[tuple[bytes, bytes]]()
    for next_decider, next_name, more in pages:
        if (next_decider, next_name) != (decider, name):
            if entries:
                yield _shelf(decider, name, entries)
            decider, name, entries = next_decider, next_name, []
        entries += more
    if entries:
        yield _shelf(decider, name, entries)


def _shelf(decider: Source, name: bytes, entries: list[tuple[bytes, bytes]]) -> Shelf:
    return Shelf(decider, name[3:].decode(), name[:1], sorted(entries))
