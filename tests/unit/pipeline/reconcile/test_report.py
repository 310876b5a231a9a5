"""The report answers first what is asked first, shows what it is given, and asks nobody else."""

from html.parser import HTMLParser

import pytest

from ringfence_pipeline.reconcile.report import answer, rings, tiles, to_html
from ringfence_pipeline.reconcile.results import AddressFound, Violation
from tests.unit.pipeline.reconcile.found import COUNTED, LONG, SHORT, findings

FAULT = Violation("doubled", "orders.unique", 3, 17, "orders-3@9 went out already")


class Elements(HTMLParser):
    """Every element with its attributes, and whether all are closed in order."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_whole_and_loads_nothing() -> None:
    elements = Elements(to_html(findings(SHORT, LONG, COUNTED, faults=(FAULT,))))
    assert elements.open == []
    tags = {tag for tag, _ in elements.found}
    assert not tags & {"script", "link", "img", "iframe", "object", "use", "image"}
    assert not [each for _, each in elements.found if {"src", "style", "srcset"} & set(each)]
    links = [each["href"] for _, each in elements.found if "href" in each]
    assert links == ["#faults"]


def test_each_fault_is_named_by_its_place() -> None:
    page = to_html(findings(LONG, faults=(FAULT,)))
    assert "Yes: 1 fault." in page
    assert "orders.unique-3@17" in page
    assert "orders-3@9 went out already" in page


def test_a_page_without_a_fault_says_so() -> None:
    page = to_html(findings(LONG))
    assert 'class="good">No.</strong>' in page


def test_what_publishers_write_is_text_in_the_page() -> None:
    evil = LONG._replace(address="<script>alert(1)</script>")
    fault = FAULT._replace(said="</table><script>")
    page = to_html(findings(evil, faults=(fault,)))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_ring_that_is_too_short_is_reported_with_the_sizes_that_would_help() -> None:
    told = answer([SHORT, LONG])
    assert told.startswith("No.")
    assert "100 copies" in told
    assert "A ring of 900 would have caught 99 %" in told
    assert "1,500 99.9 %, 4,000 all" in told


@pytest.mark.parametrize(
    ("found", "beginning"),
    [([LONG], "Yes"), ([COUNTED], "Unknown: no copy"), ([], "Unknown")],
)
def test_whether_rings_are_long_enough_is_answered_in_the_first_word(
    found: list[AddressFound], beginning: str
) -> None:
    assert answer(found).startswith(beginning)


def test_each_address_has_its_verdict() -> None:
    tight = LONG._replace(size=60_000)
    idle = LONG._replace(copies=0, needed_99=0, needed_999=0, needed_all=0)
    verdicts = [ring.verdict for ring in rings([SHORT, LONG, tight, COUNTED, idle])]
    assert verdicts == [
        "too short: 100 copies went out",
        "long enough, 7 times over",
        "long enough, but only 1.0 times",
        "no limit",
        "no copies",
    ]


def test_the_tiles_add_up() -> None:
    assert tiles(findings(LONG)) == [
        ("records", 90_910),
        ("accepted", 90_000),
        ("duplicates", 900),
        ("rejected otherwise", 3),
        ("not decided yet, or silent", 7),
        ("without a fate", 0),
    ]


def test_a_run_without_copies_has_a_page_too() -> None:
    nothing = findings()._replace(slots=(), distances=())
    assert "Unknown: no copy" in to_html(nothing)
