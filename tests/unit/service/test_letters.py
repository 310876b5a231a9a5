"""Dead letters as they are browsed where they stand."""

import pytest

from service import letters as module
from service.letter_values import LetterFilter
from service.letters import LetterBox
from tests.fakes.partition import Record
from tests.unit.service.living import Living, Telling

DLQ = "orders.dlq"
ALL = LetterFilter()


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


def box_of(living: Living) -> LetterBox:
    clients = living.clients("api")
    return LetterBox(lambda: living.config, lambda: clients, living.clock)


def paged(
    living: Living, wanted: LetterFilter, limit: int, *, newest: bool, scanned_max: int = 10**6
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
    for wanted, limit, step in ((ALL, 50, 1), (LetterFilter(reasons=("expired",)), 10**6, 3)):
        pages = paged(living, wanted, limit, newest=newest, scanned_max=scanned_max)
        assert sorted(sum(pages, [])) == list(range(0, 200, step))  # noqa: RUF017 - they are few
    page = box_of(living).page(LetterFilter(reasons=("none",)), None, 5, newest=newest)
    assert (page.letters, page.scanned, page.place is None) == ((), 64, False)


@pytest.mark.parametrize("newest", [False, True])
def test_what_an_open_transaction_holds_up_is_told_by_the_next_page(*, newest: bool) -> None:
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
