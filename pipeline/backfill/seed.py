"""Seed: what a backfill remembers is handed to a service that runs, by its admin API.

Read from the state itself, as the last batch that is done has left it: one shelf of one address at
a time is in memory here. What is known already stays as it is, so it may be done again. A number of
a publisher takes the place of the one that the service has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.backfill.inputs import BackfillInputs
from pipeline.backfill.paged_store import shelf_of_page, unpacked_entries
from pipeline.backfill.processor import STATE
from pipeline.backfill.run import BackfillTarget
from pipeline.errors import CONTRADICTION, PipelineError
from ringfence.headers import id_text
from service.config.addresses import AddressSettings, settings_of
from service.import_ids.source import IdLine
from service.import_ids.uploader import Uploader, payload_of
from state import pending_group as pending_record
from state.keys import SEGMENTS
from state.model import Origin, PartitionId
from state.segment import FORGOTTEN, ID_BYTES_MAX, decode
from state.strategies.audit import AuditRule
from state.strategies.base import Strategy
from state.strategies.per_publisher import PublisherTable
from state.strategies.registry import RING, STRATEGIES
from state.strategies.window import WindowState, parts_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SeedNumber(NamedTuple):
    """A publisher that is to stand at a number."""

    publisher: str
    row: dict[str, Any]


class SeedEntries(NamedTuple):
    """All entries of one kind and name on one deciding partition, in the order of their keys."""

    decider: PartitionId
    cache: str
    kind: bytes
    entries: list[tuple[bytes, bytes]]


class SeedReader:
    """Tells shelves; counts what no API takes."""

    def __init__(self, inputs: BackfillInputs) -> None:
        self._inputs = inputs
        self._book = inputs.book
        self.left_out: dict[str, int] = {}
        """How many are not told, by the reason."""

    def tell(self, shelf: SeedEntries) -> Iterator[IdLine | SeedNumber]:
        """What one shelf holds."""
        settings = settings_of(self._book, shelf.cache)
        strategy = STRATEGIES.get(settings.strategy, RING)
        assert strategy.kind == shelf.kind  # the settings are those that it was made with
        if shelf.kind == SEGMENTS:
            yield from self._ring(shelf, settings)
        elif shelf.kind == STRATEGIES["window"].kind:
            yield from self._window(shelf, strategy)
        else:
            yield from self._numbers(shelf, strategy, settings)

    def _ring(self, shelf: SeedEntries, settings: AddressSettings) -> Iterator[IdLine]:
        runs = [decode(value) for _, value in shelf.entries]
        floor = max(runs[-1].floor, runs[-1].end - settings.capacity)
        for run in runs:
            for number in range(max(run.first, floor), run.end):
                identifier = run.ids[number - run.first]
                if identifier != FORGOTTEN:
                    yield self._line(shelf.cache, identifier, run.origin(number))

    def _window(self, shelf: SeedEntries, strategy: Strategy) -> Iterator[IdLine]:
        window = strategy.load(shelf.entries)
        assert isinstance(window, WindowState)  # by its kind
        for name, origin in window.ids.items():
            publisher, identifier = parts_of(name)
            if publisher:
                self._leave_out("their window keeps ids of each publisher, which are not imported")
            else:
                yield self._line(shelf.cache, identifier, origin)

    def _numbers(
        self, shelf: SeedEntries, strategy: Strategy, settings: AddressSettings
    ) -> Iterator[SeedNumber]:
        held = strategy.load(shelf.entries)
        assert isinstance(held, PublisherTable)  # by its kind
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
            yield SeedNumber(publisher, row)

    def _written(self, source: PartitionId | None, decider: PartitionId) -> PartitionId:
        """The partition of an input that a publisher writes; where any will do, one of them."""
        if source is None:
            is_own = self._inputs.input_partition(decider) is not None
            source = decider if is_own else PartitionId(next(iter(self._inputs.by_topic)), 0)
        return PartitionId(self._inputs.instead_of or source.topic, source.partition)

    def _line(self, cache: str, identifier: bytes, origin: Origin) -> IdLine:
        row: Mapping[str, Any] = {
            "id": id_text(identifier),
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "time": (_EPOCH + timedelta(milliseconds=origin.time_ms)).isoformat(),
            "hashed": len(identifier) > ID_BYTES_MAX,
        }
        return IdLine(cache, dict(row))

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def shelves_of(
    pages: Iterable[tuple[PartitionId, bytes, Iterable[tuple[bytes, bytes]]]],
) -> Iterator[SeedEntries]:
    """Shelves from their pages, which come shelf by shelf."""
    decider, name, entries = PartitionId("", 0), b"", list[tuple[bytes, bytes]]()
    for next_decider, next_name, more in pages:
        if (next_decider, next_name) != (decider, name):
            if entries:
                yield _shelf(decider, name, entries)
            decider, name, entries = next_decider, next_name, []
        entries += more
    if entries:
        yield _shelf(decider, name, entries)


def _shelf(decider: PartitionId, name: bytes, entries: list[tuple[bytes, bytes]]) -> SeedEntries:
    return SeedEntries(decider, name[3:].decode(), name[:1], sorted(entries))


_PATIENCE_S: Final = 60.0

_TOLD_EVERY: Final = 100_000


class Seeded(NamedTuple):
    """What an address was told."""

    address: str
    sent: int
    """Ids, or publishers."""
    new: int | None
    """Ids that it did not know; of publishers that is not told."""


class SeedResult(NamedTuple):
    """What was handed over, and what was not, by the reason."""

    addresses: tuple[Seeded, ...]
    left_out: dict[str, int]


def seed(
    spark: SparkSession,
    folder: Path,
    client: httpx2.Client,
    *,
    instead_of: str | None = None,
    reason: str = "",
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> SeedResult:
    """Have a service know what a backfill remembers; PipelineError, or ExitError by the API."""
    inputs = _inputs(BackfillTarget(folder), instead_of)
    memories = SeedReader(inputs)
    query = {"dry_run": str(dry_run).lower(), "reason": reason}
    lines = query if inputs.instead_of is None else query | {"input": inputs.instead_of}
    sender, numbers, sent = Uploader(client, lines), dict[str, int](), 0
    for shelf in shelves_of(_pages(remembered(spark, folder))):
        for told in memories.tell(shelf):
            if isinstance(told, SeedNumber):
                if not dry_run:
                    _put(client, told, reason)
                numbers[shelf.cache] = numbers.get(shelf.cache, 0) + 1
            else:
                sender.add(told)
            sent += 1
            if not sent % _TOLD_EVERY:
                say(f"{sent:,} handed over")
    sender.flush()
    found = [Seeded(address, count.ids, count.new) for address, count in sender.counts.items()]
    found += [Seeded(address, count, None) for address, count in numbers.items()]
    return SeedResult(tuple(sorted(found, key=lambda each: each.address)), memories.left_out)


def remembered(spark: SparkSession, folder: Path) -> DataFrame:
    """The pages of all shelves, those of one together; what waits for its group is left out."""
    state = (
        spark.read.format("statestore")
        .option("path", str(BackfillTarget(folder).checkpoint))
        .option("stateVarName", STATE)
        .load()
    )
    key = sf.col("user_map_key.key")
    return (
        state.where(sf.substring(key, 1, 1) == sf.lit(b"e"))
        .where(sf.substring(key, 2, 1) != sf.lit(pending_record.KIND))
        .select("key.*", key.alias("page"), sf.col("user_map_value.value").alias("content"))
        .orderBy("decider_topic", "decider_partition", "page")
    )


def _pages(
    table: DataFrame,
) -> Iterator[tuple[PartitionId, bytes, Iterator[tuple[bytes, bytes]]]]:
    for row in table.toLocalIterator():
        shelf = shelf_of_page(bytes(row["page"]))
        assert shelf is not None  # nothing else was asked for
        decider = PartitionId(row["decider_topic"], row["decider_partition"])
        yield decider, shelf, unpacked_entries(bytes(row["content"]))


def _inputs(target: BackfillTarget, instead_of: str | None) -> BackfillInputs:
    """What was read, as the input of the service for which it stands."""
    inputs = target.inputs()
    if instead_of is None or instead_of == inputs.instead_of:
        return inputs
    if inputs.instead_of is not None:
        raise PipelineError(
            f"{target.folder} was made for the input {inputs.instead_of}, not {instead_of}: "
            "leave --input out",
            exit_code=CONTRADICTION,
        )
    return replace(inputs, instead_of=instead_of)


def _put(client: httpx2.Client, number: SeedNumber, reason: str) -> None:
    request = client.build_request(
        "PUT",
        f"/v1/publishers/{quote(number.publisher, safe='')}",
        json=number.row,
        params={"reason": reason},
        headers={"If-Match": "*"},  # in place of whatever the service has
    )
    payload_of(client, request, _PATIENCE_S)
