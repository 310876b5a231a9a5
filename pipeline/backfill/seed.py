"""Seed: what a backfill remembers is handed to a service that runs, by its admin API.

Read from the state itself, as the last batch that is done has left it: one shelf of one address at
a time is in memory here. What is known already stays as it is, so it may be done again. A number of
a publisher takes the place of the one that the service has.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import httpx2
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pipeline.backfill.inputs import Inputs
from pipeline.backfill.memories import Memories, Number, shelves_of
from pipeline.backfill.processor import STATE
from pipeline.backfill.shelves import shelf_of_page, unpacked_entries
from pipeline.backfill.target import Target
from pipeline.errors import CONTRADICTION, PipelineError
from service.adoption.sending import Sender, told_of
from state import parked
from state.edit import Source

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
    inputs = _inputs(Target(folder), instead_of)
    memories = Memories(inputs)
    query = {"dry_run": str(dry_run).lower(), "reason": reason}
    lines = query if inputs.instead_of is None else query | {"input": inputs.instead_of}
    sender, numbers, sent = Sender(client, lines), dict[str, int](), 0
    for shelf in shelves_of(_pages(remembered(spark, folder))):
        for told in memories.tell(shelf):
            if isinstance(told, Number):
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
        .option("path", str(Target(folder).checkpoint))
        .option("stateVarName", STATE)
        .load()
    )
    key = sf.col("user_map_key.key")
    return (
        state.where(sf.substring(key, 1, 1) == sf.lit(b"e"))
        .where(sf.substring(key, 2, 1) != sf.lit(parked.KIND))
        .select("key.*", key.alias("page"), sf.col("user_map_value.value").alias("content"))
        .orderBy("decider_topic", "decider_partition", "page")
    )


def _pages(
    table: DataFrame,
) -> Iterator[tuple[Source, bytes, Iterator[tuple[bytes, bytes]]]]:
    for row in table.toLocalIterator():
        shelf = shelf_of_page(bytes(row["page"]))
        assert shelf is not None  # nothing else was asked for
        decider = Source(row["decider_topic"], row["decider_partition"])
        yield decider, shelf, unpacked_entries(bytes(row["content"]))


def _inputs(target: Target, instead_of: str | None) -> Inputs:
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


def _put(client: httpx2.Client, number: Number, reason: str) -> None:
    request = client.build_request(
        "PUT",
        f"/v1/publishers/{quote(number.publisher, safe='')}",
        json=number.row,
        params={"reason": reason},
        headers={"If-Match": "*"},  # in place of whatever the service has
    )
    told_of(client, request, _PATIENCE_S)
