"""Seed: loads what a backfill remembers into a running service, through its admin API.

It reads the state after the last completed batch; one section of one address at a time is in
memory. Ids that the service knows stay unchanged, so a seed may be repeated. A publisher's number
replaces the one in the service.
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

from ringfence_client.headers import id_text
from ringfence_pipeline.backfill.batch import STATE_PAGES
from ringfence_pipeline.backfill.columns import slots_of
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_pipeline.backfill.paged_store import section_of_page, unpacked_page
from ringfence_pipeline.backfill.processor import STATE
from ringfence_pipeline.backfill.run import BackfillTarget
from ringfence_pipeline.backfill.slots import SLOT, Slots
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.storage import StorageFolder
from ringfence_service.config.addresses import AddressSettings, settings_of
from ringfence_service.import_ids.source import IdLine
from ringfence_service.import_ids.uploader import Uploader, payload_of
from ringfence_state import pending_group
from ringfence_state.model import Origin, PartitionId
from ringfence_state.segment import STORED_ID_BYTES_MAX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class SeedNumber(NamedTuple):
    """A publisher's number to set; `row` is the body of the request."""

    publisher: str
    row: dict[str, Any]


class SeedEntries(NamedTuple):
    """The entries of one section on one deciding partition, in key order."""

    decider: PartitionId
    cache: str
    kind: bytes
    entries: list[tuple[bytes, bytes]]


class SeedReader:
    """Turns sections into rows for the API; counts what the API cannot import."""

    def __init__(self, inputs: BackfillInputs) -> None:
        self._inputs = inputs
        self._book = inputs.book
        self.left_out: dict[str, int] = {}
        """Number of entries that are left out, by reason."""

    def rows(self, section: SeedEntries) -> Iterator[IdLine | SeedNumber]:
        """Yield the ids or publisher numbers of one section."""
        settings = settings_of(self._book, section.cache)
        assert settings.remembered_by.kind == section.kind  # it was written with these settings
        if settings.remembered_by.holds_ids:
            yield from self._ids(section, settings)
        else:
            yield from self._numbers(section, settings)

    def _ids(self, section: SeedEntries, settings: AddressSettings) -> Iterator[IdLine]:
        for held in settings.remembered_by.held_ids(section.entries, settings):
            if held.publisher:
                self._leave_out("their window keeps ids per publisher, which cannot be imported")
            else:
                yield self._line(section.cache, held.identifier, held.origin)

    def _numbers(self, section: SeedEntries, settings: AddressSettings) -> Iterator[SeedNumber]:
        strategy = settings.remembered_by
        memory = strategy.load(section.entries)
        if strategy.numbers is None:
            for _ in range(len(memory)):
                self._leave_out("their strategy keeps no numbers that could be set")
            return
        for publisher, position, missing in strategy.numbers.held(memory, settings):
            number, stream, source = position
            topic, partition = self._written(source, section.decider)
            row: dict[str, Any] = {
                "address": section.cache,
                "sequence": number,
                "stream": stream,
                "topic": topic,
                "partition": partition,
            }
            if missing is not None:
                row["missing"] = missing
            yield SeedNumber(publisher, row)

    def _written(self, source: PartitionId | None, decider: PartitionId) -> PartitionId:
        """Return the input partition that a publisher writes; any, if the strategy allows any."""
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
            "hashed": len(identifier) > STORED_ID_BYTES_MAX,
        }
        return IdLine(cache, dict(row))

    def _leave_out(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


def sections_of(
    pages: Iterable[tuple[PartitionId, bytes, Iterable[tuple[bytes, bytes]]]],
) -> Iterator[SeedEntries]:
    """Yield the sections of these pages; the pages must be grouped by section."""
    decider, name, entries = PartitionId("", 0), b"", list[tuple[bytes, bytes]]()
    for next_decider, next_name, more in pages:
        if (next_decider, next_name) != (decider, name):
            if entries:
                yield _section(decider, name, entries)
            decider, name, entries = next_decider, next_name, []
        entries += more
    if entries:
        yield _section(decider, name, entries)


def _section(decider: PartitionId, name: bytes, entries: list[tuple[bytes, bytes]]) -> SeedEntries:
    return SeedEntries(decider, name[3:].decode(), name[:1], sorted(entries))


_PATIENCE_S: Final = 60.0
"""How long the request of a publisher is repeated while the API answers 429 or 503.

As long as those of ids (`Uploader.patience_s`). Then the command ends, and may be run again.
"""

_REPORT_EVERY: Final = 100_000
"""Ids and publishers from one line of progress to the next: ten lines for a million."""


class Seeded(NamedTuple):
    """How much was sent for an address."""

    address: str
    sent: int
    """Number of ids, or of publishers."""
    new: int | None
    """Number of ids that the service did not know; None for publishers."""


class SeedResult(NamedTuple):
    """What was sent, by address, and what was left out, by reason."""

    addresses: tuple[Seeded, ...]
    left_out: dict[str, int]


def seed(
    spark: SparkSession,
    folder: str | Path,
    client: httpx2.Client,
    *,
    instead_of: str | None = None,
    reason: str = "",
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> SeedResult:
    """Load what a backfill remembers into a service.

    Raises PipelineError for the folder, and ExitError for the API.
    """
    target = BackfillTarget(StorageFolder.of(spark, folder))
    inputs = _inputs(target, instead_of)
    reader = SeedReader(inputs)
    query = {"dry_run": str(dry_run).lower(), "reason": reason}
    lines = query if inputs.instead_of is None else query | {"input": inputs.instead_of}
    uploader, numbers, sent = Uploader(client, lines), dict[str, int](), 0
    for section in sections_of(_pages(remembered(spark, target), slots_of(inputs))):
        for row in reader.rows(section):
            if isinstance(row, SeedNumber):
                if not dry_run:
                    _put(client, row, reason)
                numbers[section.cache] = numbers.get(section.cache, 0) + 1
            else:
                uploader.add(row)
            sent += 1
            if not sent % _REPORT_EVERY:
                say(f"{sent:,} sent")
    uploader.flush()
    found = [Seeded(address, count.ids, count.new) for address, count in uploader.counts.items()]
    found += [Seeded(address, count, None) for address, count in numbers.items()]
    return SeedResult(tuple(sorted(found, key=lambda each: each.address)), reader.left_out)


def remembered(spark: SparkSession, target: BackfillTarget) -> DataFrame:
    """Return the pages of all sections, grouped by section, without pending records.

    Raises PipelineError if the folder is not that of a backfill, or its only job has not ended.
    """
    if target.form() == "batch":
        if not target.is_decided:
            raise PipelineError(
                f"{target.folder} is not decided yet: run the same backfill again, which ends it",
                exit_code=CONTRADICTION,
            )
        return spark.read.schema(STATE_PAGES).parquet(str(target.state)).orderBy(SLOT, "page")
    return streamed_pages(spark, target.checkpoint)


def streamed_pages(spark: SparkSession, checkpoint: StorageFolder) -> DataFrame:
    """Return the pages in the state of a stream, as `remembered` does."""
    state = (
        spark.read.format("statestore")
        .option("path", str(checkpoint))
        .option("stateVarName", STATE)
        .load()
    )
    key = sf.col("user_map_key.key")
    return (
        state.where(sf.substring(key, 1, 1) == sf.lit(b"e"))
        .where(sf.substring(key, 2, 1) != sf.lit(pending_group.KIND))
        .select(
            sf.col("key").getField(SLOT).alias(SLOT),
            key.alias("page"),
            sf.col("user_map_value.value").alias("content"),
        )
        .orderBy(SLOT, "page")
    )


def _pages(
    table: DataFrame, slots: Slots
) -> Iterator[tuple[PartitionId, bytes, Iterator[tuple[bytes, bytes]]]]:
    for row in table.toLocalIterator():
        section = section_of_page(bytes(row["page"]))
        assert section is not None  # the filter leaves only pages
        yield slots.partition(row[SLOT]), section, unpacked_page(bytes(row["content"]))


def _inputs(target: BackfillTarget, instead_of: str | None) -> BackfillInputs:
    """Return the inputs of a backfill, with the service's input that replaces them."""
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
        headers={"If-Match": "*"},  # overwrites the number of the service
    )
    payload_of(client, request, _PATIENCE_S)
