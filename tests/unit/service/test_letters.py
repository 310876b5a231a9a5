"""Dead letters as they are browsed where they stand."""

import pytest

from service import letters as module
from service.letter_values import LetterFilter
from service.letters import LetterBox
from tests.unit.service.living import Living


@pytest.mark.parametrize("newest", [False, True])
def test_a_page_reads_no_more_than_it_may_and_the_next_one_goes_on(
    *, newest: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE_RECORDS_MAX", 64)
    living, found, place = Living(partitions=2), list[bytes | None](), None
    for number in range(200):
        living.write(b"%d" % number, topic="orders.dlq", partition=number % 3 // 2)
    clients = living.clients("api")
    box = LetterBox(lambda: living.config, lambda: clients, living.clock)
    for _ in range(9):
        page = box.page(LetterFilter(), place, 50, newest=newest)
        assert page.scanned <= 2 * 64
        found += [view.value for view in page.letters]
        place = page.place
        if place is None:
            break
    assert sorted(map(int, filter(None, found))) == list(range(200))
