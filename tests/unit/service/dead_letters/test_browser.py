"""Dead letters as they are browsed where they stand."""

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, KafkaException

from service.dead_letters import browser as module
from service.dead_letters.browser import DeadLetterBrowser
from service.dead_letters.reader import DeadLetterReader, OffsetScan
from service.dedup.dead_letter import DeadLetterFilter, DeadLetterPosition, DeadLetterView
from service.queries.errors import Busy, NotPossible, Unavailable
from state.model import PartitionId
from tests.fakes.partition import Record
from tests.support.living import Living, Telling, gone

DLQ = "orders.dlq"
ALL = DeadLetterFilter()


def filled(count: int, partitions: int = 2) -> Living:
    """Letters a second apart, of no even share; every third for another reason."""
    living = Living(partitions=partitions, chance=Telling(DLQ))
    for number in range(count):
        reason = b"duplicate" if number % 3 else b"expired"
        told = {"reason": reason, "topic": b"orders", "partition": b"0", "offset": b"7"}
        headers = [(f"ringfence.{name}", value) for name, value in told.items()]
        record = Record(None, b"%d" % number, [*headers], number * 1000)
        living.cluster.write(DLQ, number * number % 7 % partitions, record)
    return living


def box_of(living: Living) -> DeadLetterBrowser:
    clients = living.clients("api")
    return DeadLetterBrowser(lambda: living.config, lambda: clients, living.clock)


def paged(
    living: Living, wanted: DeadLetterFilter, limit: int, *, newest: bool, scanned_max: int = 10**6
) -> list[list[int]]:
    """What stands in each page."""
    box, place, pages = box_of(living), None, list[list[int]]()
    while place is not None or not pages:
        page = box.page(wanted, place, limit, newest=newest)
        assert (len(page.letters) <= limit, page.scanned <= scanned_max) == (True, True)
        pages.append([int(view.value or b"") for view in page.letters])
        place = page.place
    return pages


@pytest.mark.parametrize("newest", [False, True])
def test_each_page_is_in_the_order_of_times_and_all_pages_together_tell_each_letter_once(
    *, newest: bool
) -> None:
    pages = paged(filled(200, 3), ALL, 7, newest=newest)
    assert all(page == sorted(page, reverse=newest) for page in pages)
    found = [number for page in pages for number in page]
    assert sorted(found, reverse=True) == list(range(199, -1, -1))
    assert found == sorted(found, reverse=True) or not newest


@pytest.mark.parametrize("newest", [False, True])
def test_a_page_reads_no_more_than_it_may_and_the_next_one_goes_on(
    *, newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_RECORDS_MAX", 64)
    living, scanned_max = filled(200), 127 if newest else 64
    for wanted, limit, step in ((ALL, 50, 1), (DeadLetterFilter(reasons=("expired",)), 10**6, 3)):
        pages = paged(living, wanted, limit, newest=newest, scanned_max=scanned_max)
        assert sorted(sum(pages, [])) == list(range(0, 200, step))  # noqa: RUF017 - they are few
    page = box_of(living).page(DeadLetterFilter(reasons=("none",)), None, 5, newest=newest)
    assert (page.letters, page.scanned, page.place is None) == ((), 64, False)


def test_of_few_that_are_meant_the_newest_are_found_by_longer_and_longer_steps() -> None:
    box = box_of(filled(1_000, 1))
    page = box.page(DeadLetterFilter(to_ms=801_000), None, 100, newest=True)
    assert [view.time_ms for view in page.letters] == list(range(800_000, 700_000, -1000))
    assert page.scanned == 200 + 400  # 2 * limit is more than the least step
    page = box.page(DeadLetterFilter(to_ms=5_000), None, 9, newest=True)
    assert (len(page.letters), page.scanned, page.place) == (5, 1_000, None)


@pytest.mark.parametrize("newest", [False, True])
def test_records_held_up_by_an_open_transaction_appear_on_the_next_page(*, newest: bool) -> None:
    living = filled(5, 1)
    producer = living.clients("other").producer(1_000_000, lambda _error: None)
    producer.init_transactions(1)
    producer.begin_transaction()
    producer.produce(DLQ, b"5", partition=0)
    producer.flush(1)
    box = box_of(living)
    first, counted = box.page(ALL, None, 50, newest=newest), box.count(ALL, None)
    assert (len(first.letters), counted.scanned) == (0 if newest else 5, 5)
    producer.commit_transaction(1)
    second = box.page(ALL, first.place, 50, newest=newest)
    assert len(first.letters) + len(second.letters) == 6
    assert (second.place, box.count(ALL, counted.place).scanned) == (None, 1)


def test_a_letter_is_found_at_its_position_or_reported_missing_at_once() -> None:
    living = Living(partitions=2)
    for topic in (DLQ, DLQ, DLQ, "orders"):
        living.write(b"v", topic=topic, partition=1)
    living.cluster.logs[DLQ].partitions[1].delete_before(1)
    box, before_ms = box_of(living), living.cluster.now_ms
    for number in (1, 2):
        found = box.one(DeadLetterPosition(DLQ, 1, number))
        assert found is not None
        assert (found.place.offset, found.value) == (number, b"v")
    for topic, partition, offset in ((DLQ, 1, 0), (DLQ, 1, 3), (DLQ, 0, 0), (DLQ, 2, 0)):
        assert box.one(DeadLetterPosition(topic, partition, offset)) is None
    assert (
        box.one(DeadLetterPosition("orders", 1, 0))
        is box.one(DeadLetterPosition("absent", 0, 0))
        is None
    )
    assert living.cluster.now_ms - before_ms < 1_000


def test_a_count_goes_on_where_it_ended_and_shows_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COUNT_RECORDS_MAX", 8)
    monkeypatch.setattr(module, "NAMED_MAX", 3)
    box, seen, place, scanned = box_of(filled(20, 1)), list[DeadLetterView](), None, list[int]()
    for _ in range(3):
        counts = box.count(DeadLetterFilter(reasons=("expired",)), place, seen.append)
        place = counts.place
        scanned.append(counts.scanned)
    assert (scanned, counts.matched, place) == ([8, 8, 4], 1, None)
    assert [view.place.offset for view in seen] == list(range(0, 20, 3))
    places = [DeadLetterPosition(DLQ, 0, offset) for offset in (4, 99, 1, 2)]
    named = box.count_named(places, seen.append)
    assert (named.scanned, named.matched, named.place) == (2, 2, 4)
    assert [view.place.offset for view in seen[-2:]] == [4, 1]
    assert box.count_named(places[:3], seen.append).place is None


def test_topics_without_dead_letters_and_invalid_page_tokens_are_refused() -> None:
    living = filled(3, 1)
    box = box_of(living)
    with pytest.raises(NotPossible, match=r"orders is not a dead.*group; those are: orders.dlq"):
        box.count(DeadLetterFilter(topics=("orders",)), None)
    for place in ("x", ["newest", {}], ["oldest", []], ["oldest", {DLQ: [["x", 1]]}]):
        with pytest.raises(NotPossible, match="The page token is not one"):
            box.page(ALL, place, 5, newest=False)
    assert len(box.page(ALL, ["oldest", {DLQ: [[0, -5]]}], 5, newest=False).letters) == 3
    del living.cluster.logs[DLQ]
    with pytest.raises(NotPossible, match="none exists yet"):
        box.count(DeadLetterFilter(topics=(DLQ,)), None)


def test_four_read_at_a_time_and_a_broker_that_is_away_takes_no_seat() -> None:
    living = Living()
    box, away = box_of(living), iter([gone()] * 5)
    living.faults.at["names"] = away
    for _ in range(5):
        with pytest.raises(Unavailable, match="answered _TRANSPORT; ask again") as refusal:
            box.count(ALL, None)
    with ExitStack() as seats:
        for _ in range(4):
            seats.enter_context(box.reading())
        with pytest.raises(Busy, match="4 requests are already reading") as busy:
            box.count(ALL, None)
    assert (refusal.value.retry_after_s, busy.value.retry_after_s) == (2, 2)
    assert box.count(ALL, None).scanned == 0


def test_no_error_has_a_reader_leave_out_a_letter() -> None:
    living, source = filled(9, 1), PartitionId(DLQ, 0)
    errors = living.cluster.chance.errors  # type: ignore[attr-defined]  # it tells
    reader = DeadLetterReader(living.clients("api"))

    def read(start: int, records_max: int = 9) -> tuple[list[int | None], int]:
        messages, position = reader.read(source, start, records_max, 0.1)
        return [message.offset() for message in messages], position

    assert (read(0, 2), read(2, 2)) == (([0, 1], 2), ([2, 3], 4))
    errors.append(KafkaError(KafkaError._TRANSPORT))
    assert (read(4, 2), read(4, 2)) == (([], 4), ([4, 5], 6))
    assert read(1, 1) == ([1], 2)
    living.cluster.logs[DLQ].partitions[0].delete_before(7)
    assert (read(2), read(7), read(9)) == (([], 7), ([7, 8], 9), ([], 9))
    for code in (KafkaError._TRANSPORT, KafkaError._AUTO_OFFSET_RESET, 29):
        errors.append(KafkaError(code))
        consumer = living.clients("api").restorer()
        sweep = OffsetScan(consumer, {source: 7}, {source: 8}, 9, lambda: False)
        if code == KafkaError._TRANSPORT:
            assert [message.offset() for message in sweep] == [7]
            assert (sweep.positions, sweep.scanned, sweep.is_done) == ({source: 8}, 1, True)
        else:
            with pytest.raises(KafkaException):
                list(sweep)
