"""What several loops answer together is what one loop answers that owns every partition."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.model import RouteSettings
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import (
    AddressAnswer,
    AddressesAnswer,
    AddressesQuery,
    AddressQuery,
    AddressRow,
    DirectoryAnswer,
    DirectoryQuery,
)
from ringfence_service.queries.ids import (
    IdCursor,
    IdLocation,
    IdQuery,
    IdsAnswer,
    IdSearch,
    IdsLookup,
    IdsQuery,
    RememberedId,
)
from ringfence_service.queries.publishers import PublisherQuery, PublishersQuery
from ringfence_service.queries.registry import Answer, Query, merged
from ringfence_service.queries.settings import EvictionQuery
from tests.fakes.partition import Headers, Record
from tests.simulation.disk import Disk
from tests.support.helpers import answer
from tests.support.living import Living, turn_until_running, turns

PARTITIONS = 4
RINGS, NUMBERS = "rings", "numbers"
BOOK: Mapping[str, Mapping[str, object]] = {
    RINGS: {"id_cache_size": 5},
    NUMBERS: {"strategy": "sequence"},
}
QUERIES: list[Query] = [
    AddressQuery(RINGS),
    AddressQuery(NUMBERS),
    AddressQuery("never seen"),
    DirectoryQuery(),
    AddressesQuery((RINGS, "never seen")),
    IdsLookup(RINGS, (b"a", b"z", b"b")),
    IdSearch(b"a", (RINGS, NUMBERS, "never seen")),
    *(IdQuery(RINGS, letter.encode()) for letter in "abcz"),
    PublisherQuery("a"),
    PublisherQuery("nobody"),
    PublishersQuery("", 2),
    PublishersQuery("a", 100),
    EvictionQuery({RINGS: {"id_cache_size": 2}, NUMBERS: {"strategy": "ring"}}),
]
Ask = Callable[[Query], Answer]


def world(sent: Sequence[tuple[int, str]]) -> Living:
    """Each letter is an id of one address, and a publisher of another."""
    living = Living(
        RouteSettings(name="orders", inputs=("orders",), address="{header:addr}"),
        BOOK,
        partitions=PARTITIONS,
    )
    for number, (partition, letter) in enumerate(sent):
        ring: Headers = [("addr", RINGS.encode()), (DUPLICATE_ID, letter.encode())]
        counting: Headers = [("addr", NUMBERS.encode()), ("_PUBLISHER", letter.encode())]
        counting.append(("_SEQ", str(number + 1).encode()))
        for headers in (ring, counting):
            living.cluster.write("orders", partition, Record(None, b"v", headers, number))
    return living


def shared(living: Living, loop: Loop) -> list[Loop]:
    """Two loops, each with its half."""
    other = living.loop("1", Disk(living.cluster.step))
    for _ in range(30):
        turns(loop, 1)
        turns(other, 1)
        living.cluster.wait(0.5)
    assert [len(each.assignment.running) for each in (loop, other)] == [2, 2]
    return [loop, other]


def of_all(loops: Sequence[Loop]) -> Ask:
    def ask(query: Query) -> Answer:
        return merged(query, [answer(query, loop) for loop in loops], complete=True)

    return ask


def without_bytes(told: Answer) -> Answer:
    """How much memory a ring takes, and when it began to count, depend on how it came to be.

    So does what a directory tells of what is held: nothing until it was looked at.
    """
    if isinstance(told, DirectoryAnswer):
        counts = zip(told.counted, told.accepted, told.duplicates, strict=True)
        names, counted = sorted(set(told.addresses)), sorted(map(str, counts))
        return DirectoryAnswer(tuple(names), (), (), (), tuple(counted), (), (), told.complete)
    if isinstance(told, AddressesAnswer):
        return AddressesAnswer(tuple(map(_row_without_bytes, told.rows)), 0, told.complete)
    if isinstance(told, AddressAnswer):
        return told._replace(
            counted_since_ms=0, partitions=tuple(p._replace(bytes=0) for p in told.partitions)
        )
    return told


def _row_without_bytes(row: AddressRow) -> AddressRow:
    return row._replace(partitions=tuple(each._replace(bytes=0) for each in row.partitions))


def pages(ask: Ask, limit: int, *, oldest_first: bool) -> list[IdsAnswer]:
    query = IdsQuery(RINGS, None, limit, oldest_first)
    found = [cast("IdsAnswer", ask(query))]
    while found[-1].cursor is not None:
        found.append(cast("IdsAnswer", ask(query._replace(cursor=found[-1].cursor))))
        assert len(found) < 100, "the pages do not end"
    return found


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from("abcdefgh")), max_size=30)
)
def test_two_loops_together_answer_as_one_that_has_all(sent: list[tuple[int, str]]) -> None:
    living = world(sent)
    loop = living.loop()
    turn_until_running(loop)
    turns(loop, 5)
    alone = of_all([loop])
    before = [without_bytes(alone(query)) for query in QUERIES]
    assert before == [without_bytes(answer(query, loop)) for query in QUERIES]
    kinds = [(limit, upwards) for limit in (1, 3, 100) for upwards in (False, True)]
    listed = [pages(alone, limit, oldest_first=upwards) for limit, upwards in kinds]
    together = of_all(shared(living, loop))
    assert [without_bytes(together(query)) for query in QUERIES] == before
    assert [pages(together, limit, oldest_first=up) for limit, up in kinds] == listed


def row(partition: int, number: int) -> RememberedId:
    sighting = IdLocation("orders", partition, number, 0, 1)
    return RememberedId(b"%d" % number, sighting, IdCursor("orders", partition, number + 1))


def test_a_partition_that_moves_between_two_answers_is_listed_once() -> None:
    page = IdsAnswer((row(0, 2), row(0, 1)), None)
    told = merged(IdsQuery(RINGS, None, 10), [page, page], complete=True)
    assert told == page._replace(complete=True)


def test_a_page_that_is_cut_goes_on_with_the_first_that_it_left_out() -> None:
    pages_ = [IdsAnswer((row(1, 9), row(1, 8)), None), IdsAnswer((row(0, 2),), None)]
    told = merged(IdsQuery(RINGS, None, 2), pages_, complete=False)
    assert told == IdsAnswer((row(0, 2), row(1, 9)), row(1, 8).at)
