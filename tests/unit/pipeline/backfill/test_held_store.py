"""Held store: it decides as the service does, and its pages hold what a paged store has kept."""

from random import Random

import pytest

from ringfence_pipeline.backfill import held_store
from ringfence_pipeline.backfill.decider import BatchDecider
from ringfence_pipeline.backfill.held_store import HeldStore
from ringfence_pipeline.backfill.paged_store import PagedStore, section_of_page, unpacked_page
from ringfence_state import pending_group
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId
from tests.unit.pipeline.backfill.histories import (
    NOW_MS,
    SETTINGS,
    STRATEGIES,
    history,
    inputs_of,
    route,
)
from tests.unit.pipeline.backfill.test_decider import OWN, Dict
from tests.unit.pipeline.backfill.the_service import Said, TheService

Entries = dict[bytes, bytes]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_decider_remembers_in_memory_what_it_remembers_in_pages(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_store, "PAGE_BYTES", 40)
    random = Random(strategy)
    settings = {"#": SETTINGS[strategy]}
    inputs = inputs_of(settings, route("orders", scope="partition", address="{header:_TENANT}"))
    rows = [
        row._replace(headers=[*row.headers, ("_TENANT", random.choice([b"a", b"b", None]))])
        for row in history(random, strategy, [OWN], 2_000)
    ]
    held, cache, entries = HeldStore(), Cache(inputs.cache_memory_bytes), Dict()
    said: dict[tuple[PartitionId, int], Said] = {}
    for at in range(0, len(rows), 300):
        part = rows[at : at + 300]
        paged = PagedStore(entries)
        for store, of_store in ((held, cache), (paged, None)):
            batch = BatchDecider(OWN, inputs, store, NOW_MS, of_store)
            found = batch.judge(part)
            batch.close()
        assert held.addresses == paged.addresses
        assert held.progress == paged.progress
        said |= {(each.source, each.offset): Said(each.verdict, each.original) for each in found}
    assert said == TheService(OWN, inputs, random, NOW_MS).say(rows)

    pages = list(held.pages())
    assert unpaged(pages) == unpaged(sorted(entries.items()))
    assert len({key for key, _ in pages}) == len(pages) > 2


def unpaged(pages: list[tuple[bytes, bytes]]) -> Entries:
    """The entries on these pages, but those of pending records."""
    found: Entries = {}
    for key, content in pages:
        section = section_of_page(key)
        if section is not None and section[:1] != pending_group.KIND:
            found |= unpacked_page(content)
    return found
