"""Dead letters as they are browsed where they stand."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from ringfence_client.headers import DUPLICATE_ID, ID_BYTES_MAX
from ringfence_service.dead_letters import browser as module
from ringfence_service.dead_letters.browser import DeadLetterBrowser
from ringfence_service.dead_letters.reader import DeadLetterReader, OffsetScan, to_view
from ringfence_service.dedup.claim import ClaimReader
from ringfence_service.kafka.model import UNREADABLE
from ringfence_service.kafka.topics import fallback
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
)
from ringfence_service.queries.errors import Busy, NotPossible, Unavailable
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import PartitionId
from tests.fakes.partition import Record
from tests.support.living import GROUP, Living, Telling, gone

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
        place = page.cursor
    return pages


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize(("partitions", "limit"), [(3, 7), (2, 120), (1, 1)])
def test_each_page_is_in_the_order_of_times_and_all_pages_together_tell_each_letter_once(
    partitions: int, limit: int, *, newest: bool
) -> None:
    pages = paged(filled(200, partitions), ALL, limit, newest=newest)
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
    assert (page.letters, page.scanned, page.cursor is None) == ((), 64, False)


def test_of_few_that_are_meant_the_newest_are_found_by_longer_and_longer_steps() -> None:
    box = box_of(filled(1_000, 1))
    page = box.page(DeadLetterFilter(to_ms=801_000), None, 100, newest=True)
    assert [view.time_ms for view in page.letters] == list(range(800_000, 700_000, -1000))
    assert page.scanned == 200 + 400  # 2 * limit is more than the least step
    page = box.page(DeadLetterFilter(to_ms=5_000), None, 9, newest=True)
    assert (len(page.letters), page.scanned, page.cursor) == (5, 1_000, None)
    page = box.page(DeadLetterFilter(to_ms=938_000), None, 62, newest=True)
    assert (len(page.letters), page.scanned) == (62, 124)


class Slow(Telling):
    """A broker whose answers take their time, after some that do not."""

    def __init__(self, topic: str, at_once: int, ms: int) -> None:
        super().__init__(topic)
        self.at_once, self._ms = at_once, ms

    def answers_after_ms(self, topic: str) -> int:
        del topic
        self.at_once -= 1
        return 0 if self.at_once >= 0 else self._ms


def test_a_page_ends_after_four_seconds_of_reading() -> None:
    living = filled(1_000, 1)
    living.cluster.chance = Slow(DLQ, at_once=0, ms=3_000)
    page = box_of(living).page(DeadLetterFilter(reasons=("none",)), None, 5, newest=True)
    assert (page.letters, page.scanned, page.cursor is None) == ((), 64 + 64, False)


def test_what_was_not_read_in_time_comes_on_the_next_page() -> None:
    living, wanted = filled(1_000, 1), DeadLetterFilter(reasons=("expired",))
    living.cluster.chance = slow = Slow(DLQ, at_once=1, ms=60_000)
    box = box_of(living)
    page = box.page(wanted, None, 30, newest=True)
    assert [int(view.value or b"") for view in page.letters] == list(range(999, 935, -3))
    slow.at_once = 1_000
    page = box.page(wanted, page.cursor, 30, newest=True)
    assert [int(view.value or b"") for view in page.letters] == list(range(933, 843, -3))


def test_letters_from_a_time_on_are_counted_and_shown() -> None:
    living = filled(20)
    living.cluster.logs[DLQ].partitions[1].delete_before(1)
    box = box_of(living)
    left = {view.time_ms for view in box.page(ALL, None, 50, newest=False).letters}
    for from_ms in (0, 9_000, 20_000):
        wanted = DeadLetterFilter(from_ms=from_ms)
        times_ms = {time_ms for time_ms in left if time_ms >= from_ms}
        counts = box.count(wanted, None)
        assert (counts.matched, counts.scanned, counts.cursor) == (len(times_ms),) * 2 + (None,)
        page = box.page(wanted, None, 50, newest=True)
        assert {view.time_ms for view in page.letters} == times_ms


def test_of_named_topics_no_other_is_read() -> None:
    living, other = filled(3, 1), fallback(GROUP)
    living.cluster.create_topic(other)
    living.write(b"v", topic=other)
    box = box_of(living)
    scanned = [box.count(DeadLetterFilter(topics=names), None).scanned for names in ((), (DLQ,))]
    assert scanned == [4, 3]


def test_where_no_topic_exists_yet_there_are_no_letters() -> None:
    living = Living()
    del living.cluster.logs[DLQ]
    box = box_of(living)
    for wanted in (ALL, DeadLetterFilter(from_ms=1)):
        page = box.page(wanted, None, 5, newest=True)
        assert (page.letters, page.scanned, page.cursor) == ((), 0, None)


def absence(found: DeadLetterView | InputRecord | Absence) -> str:
    assert isinstance(found, Absence)
    return found.why


def test_an_offset_without_a_record_has_no_letter() -> None:
    living = Living()
    producer = living.clients("other").producer(1_000_000, lambda _error: None)
    producer.init_transactions(1)
    producer.begin_transaction()
    producer.produce(DLQ, b"aborted", partition=0)
    producer.flush(1)
    producer.abort_transaction(1)
    living.write(b"v", topic=DLQ)
    box = box_of(living)
    found = [box.one(DeadLetterPosition(DLQ, 0, offset)) for offset in (0, 1, 2)]
    assert [absence(each) for each in found[:2]] == ["gap", "gap"]
    assert isinstance(found[2], DeadLetterView)
    assert found[2].value == b"v"


def test_an_offset_behind_an_open_transaction_is_not_said_to_have_no_record() -> None:
    living = Living()
    producer = living.clients("other").producer(1_000_000, lambda _error: None)
    producer.init_transactions(1)
    producer.begin_transaction()
    producer.produce(DLQ, b"5", partition=0)
    producer.flush(1)
    assert absence(box_of(living).one(DeadLetterPosition(DLQ, 0, 0))) == "open"


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
    second = box.page(ALL, first.cursor, 50, newest=newest)
    assert len(first.letters) + len(second.letters) == 6
    assert (second.cursor, box.count(ALL, counted.cursor).scanned) == (None, 1)


def test_a_letter_is_found_at_its_position_or_reported_missing_at_once() -> None:
    living = Living(partitions=2)
    for topic in (DLQ, DLQ, DLQ, "orders"):
        living.write(b"v", topic=topic, partition=1)
    living.cluster.logs[DLQ].partitions[1].delete_before(1)
    box, before_ms = box_of(living), living.cluster.now_ms
    for number in (1, 2):
        found = box.one(DeadLetterPosition(DLQ, 1, number))
        assert isinstance(found, DeadLetterView)
        assert (found.position.offset, found.value) == (number, b"v")
    assert box.one(DeadLetterPosition(DLQ, 1, 0)) == Absence("deleted", 1, 3)
    assert box.one(DeadLetterPosition(DLQ, 1, 3)) == Absence("end", 1, 3)
    assert box.one(DeadLetterPosition(DLQ, 0, 0)) == Absence("end", 0, 0)
    assert absence(box.one(DeadLetterPosition(DLQ, 2, 0))) == "partition"
    assert absence(box.one(DeadLetterPosition("orders", 1, 0))) == "topic"
    assert absence(box.one(DeadLetterPosition("absent", 0, 0))) == "topic"
    assert living.cluster.now_ms - before_ms < 1_000


@pytest.mark.parametrize("newest", [False, True])
def test_the_next_letter_of_a_partition_follows_in_the_order_of_the_page(*, newest: bool) -> None:
    box, wanted = box_of(filled(40)), DeadLetterFilter(reasons=("expired",))
    log = box.page(wanted, None, 100, newest=False).letters
    for partition in (0, 1):
        mine = [view.position for view in log if view.position.partition == partition]
        mine = mine[::-1] if newest else mine
        walked = mine[:1]
        while page := box.page(wanted, None, 1, newest=newest, after=walked[-1]).letters:
            walked += [view.position for view in page]
        assert walked == mine
    for place in (DeadLetterPosition("orders", 0, 0), DeadLetterPosition(DLQ, 9, 0)):
        assert box.page(ALL, None, 1, newest=newest, after=place) == ((), 0, None)


def test_the_original_is_read_from_inputs_alone() -> None:
    living = filled(3, 1)
    living.send("a", "b")
    box = box_of(living)
    found = box.record(DeadLetterPosition("orders", 0, 1))
    assert isinstance(found, InputRecord)
    assert (found.position.offset, found.value, dict(found.headers)) == (
        1,
        b"b",
        {DUPLICATE_ID: b"b"},
    )
    for topic, offset, why in ((DLQ, 0, "topic"), ("orders", 2, "end"), ("none", 0, "topic")):
        assert absence(box.record(DeadLetterPosition(topic, 0, offset))) == why


def read_by_its_route(template: str, value: bytes) -> tuple[str | None, bytes | None, str]:
    """Address, id and error of a record that has an id in a header."""
    living = filled(1, 1)
    (route,) = living.config.routes
    settings = replace(route, id=template, address="orders-{header:region}")
    living.config = replace(living.config, routes=(settings,))
    headers = [(DUPLICATE_ID, b"h"), ("region", b"eu")]
    living.cluster.write("orders", 0, Record(None, value, [*headers], 1))
    found = box_of(living).record(DeadLetterPosition("orders", 0, 0))
    assert isinstance(found, InputRecord)
    return found.address, found.identifier, found.id_error or ""


@pytest.mark.parametrize(
    ("template", "value", "identifier", "error"),
    [
        ("", b"{}", b"h", ""),
        ("{json:/id}", b'{"id": 7}', b"7", ""),
        ("{json:/id}", b"{}", None, "the value has no"),
        ("{header:none}", b"{}", None, "the record has nothing for {header:none}"),
    ],
)
def test_the_route_of_an_original_reads_its_id_and_address(
    template: str, value: bytes, identifier: bytes | None, error: str
) -> None:
    address, found, why = read_by_its_route(template, value)
    assert (address, found) == ("orders-eu", identifier)
    assert (why[: len(error)], bool(why)) == (error, bool(error))


def test_an_original_whose_id_is_refused_says_why() -> None:
    value = b'{"id": "%b"}' % (b"x" * (ID_BYTES_MAX + 1))
    why = f"the id has {ID_BYTES_MAX + 1} bytes; at most {ID_BYTES_MAX} are allowed"
    assert read_by_its_route("{json:/id}", value) == ("orders-eu", None, why)


def test_an_original_is_read_without_its_id_while_the_registry_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(*_: object) -> None:
        raise RegistryUnavailableError("http://registry", "refuses connections")

    monkeypatch.setattr(ClaimReader, "of", unavailable)
    sentence = "the route needs the schema registry at http://registry, which refuses connections"
    assert read_by_its_route("{schema:/id}", b"{}") == ("orders-eu", None, sentence)


def test_a_count_goes_on_where_it_ended_and_shows_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "COUNT_RECORDS_MAX", 8)
    monkeypatch.setattr(module, "NAMED_MAX", 3)
    box, seen, place, scanned = box_of(filled(20, 1)), list[DeadLetterView](), None, list[int]()
    for _ in range(3):
        counts = box.count(DeadLetterFilter(reasons=("expired",)), place, seen.append)
        place = counts.cursor
        scanned.append(counts.scanned)
    assert (scanned, counts.matched, place) == ([8, 8, 4], 1, None)
    assert [view.position.offset for view in seen] == list(range(0, 20, 3))
    places = [DeadLetterPosition(DLQ, 0, offset) for offset in (4, 99, 1, 2)]
    named = box.count_named(places, seen.append)
    assert (named.scanned, named.matched, named.cursor) == (2, 2, 4)
    assert [view.position.offset for view in seen[-2:]] == [4, 1]
    assert box.count_named(places[:3], seen.append).cursor is None


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
    assert living.faults.passed["close"] == 5 + 4 + 1, "each request closes its consumer"


def test_a_record_with_unreadable_headers_is_shown_without_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No message with a header name that is not text can be made in Python.
    monkeypatch.setattr(
        "ringfence_service.dead_letters.reader.read_headers", lambda _: [UNREADABLE]
    )
    view = to_view(Message(topic=DLQ, partition=0, offset=0, value=b"v", timestamp=(1, 5)))
    assert (view.value, view.time_ms, view.reason, view.headers) == (b"v", 5, None, ())


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
    assert (read(7, 1), read(7, 1)) == (([7], 8), ([7], 8)), "what is read again is not passed over"
    errors.append(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException):
        read(8)
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        read(8)
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
