"""The console: every page with real documents of the API, and what holds for all of them."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote, urldefrag, urlsplit

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from ringfence_api.console.pages import find
from ringfence_api.console.pages.addresses import is_short
from ringfence_api.console.pages.letters import compared
from ringfence_api.console.pages.partitions import by_owner
from ringfence_api.ports import ServiceView
from ringfence_service.dedup.dead_letter import Mode, SourcePosition
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    RedriveProgress,
)
from ringfence_service.queries.errors import TimedOut
from ringfence_service.queries.ids import IdLocation
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.status import RouteCounts, ServiceStatus
from tests.api.console_pages import EVERY, Page, page_of
from tests.api.fake_letters import LETTER as LETTER_VIEW
from tests.api.fake_letters import FakeLetters, FakeRedrives, sent_job
from tests.api.fake_service import (
    RESTORING_PARTITION,
    RUNNING,
    STARTING,
    STRANGE,
    answering,
    remembering,
)
from tests.api.guarded import HERE, TOKENS, client_of
from tests.support.statuses import changed, worker_status


def test_the_console_is_found_under_its_name(client: TestClient) -> None:
    for path in ("/console", "/console/"):
        assert client.get(path, follow_redirects=False).headers["Location"] == "/"


def test_every_page_is_whole_loads_nothing_from_elsewhere_and_leads_to_pages(
    client: TestClient,
) -> None:
    answers, pages = dict[str, Response](), dict[str, Page]()

    def found(path: str) -> Page:
        if path not in pages:
            pages[path] = page_of(client, path)
        return pages[path]

    for path in EVERY:
        answers[path] = client.get(path, headers={"Accept": "text/html"})
        page = pages[path] = Page(answers[path].text)
        assert len(page.ids) == len(set(page.ids)), path
        assert (page.tags.count("h1"), page.tags.count("main"), page.unnamed) == (1, 1, []), path
        policy = answers[path].headers["Content-Security-Policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        names = {name for name, _ in page.attributes}
        assert not [name for name in names if name == "style" or name.startswith("on")], path
        assert "style" not in page.tags
        assert "<script>" not in answers[path].text
        for place in (*page.loaded, *page.links, *(form.action for form in page.forms)):
            assert not urlsplit(place).netloc
            assert not urlsplit(place).scheme
    for loaded in {each for page in pages.values() for each in page.loaded}:
        assert client.get(loaded).status_code == 200
    for path in EVERY:
        for link in pages[path].links:
            place, fragment = urldefrag(link)
            led_to = found(place or path)
            assert not fragment or fragment in led_to.ids, (path, link)


@pytest.mark.parametrize("status", [STARTING, RUNNING._replace(phase="waiting")])
def test_a_page_of_a_service_that_cannot_answer_says_what_to_do(
    client_at: Callable[[ServiceStatus], TestClient], status: ServiceStatus
) -> None:
    client = client_at(status)
    for path in EVERY:
        answer = client.get(path)
        assert answer.status_code in {200, 503}, path
        page = Page(answer.text)
        assert answer.status_code == 200 or "Try again" in page.text, path


def test_what_it_waits_for_stands_on_every_page(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    waiting = RUNNING._replace(phase="waiting", waiting_for="the broker at b:1; look at it")
    client, usual = client_at(waiting), client_at(RUNNING)
    for path in ("/", "/console/partitions", "/console/settings", "/console/no-such"):
        status = 404 if "no-such" in path else 200
        pages = [page_of(each, path, status) for each in (client, usual)]
        assert pages[0].text.count("the broker at b:1; look at it") == 1, path
        # The switch of times is hidden too, until the script shows it.
        assert [page.attributes.count(("hidden", None)) for page in pages] == [1, 2], path


def test_an_id_of_an_address_that_was_never_seen_is_not_said_to_be_forgotten(
    client: TestClient,
) -> None:
    sentence = "No record of the address"
    assert sentence in page_of(client, f"/console/ids?address={STRANGE}&id=x").text
    assert sentence not in page_of(client, "/console/ids?address=orders&id=x").text


def test_counts_stand_on_the_first_page(client: TestClient) -> None:
    text = page_of(client, "/").text
    assert "Accepted" in text
    assert "8 since start" in text
    assert "2 since start" in text
    assert "Committed since start" in text


def test_a_partition_that_is_restored_shows_how_far(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    status = RUNNING._replace(partitions=(RESTORING_PARTITION,))
    assert "41 left" in page_of(client_at(status), "/console/partitions").text


def test_a_process_that_restores_shows_how_far(view: ServiceView) -> None:
    well = worker_status()
    half = changed(RESTORING_PARTITION, restored_records=41)
    view = replace(view, workers=lambda: (well.restoring((half,)),))
    assert "50 % of 1 partition" in page_of(client_of(view), "/console/partitions").text


def test_processes_that_do_not_run_the_compiled_path_though_wanted_show_why_once(
    view: ServiceView,
) -> None:
    well = worker_status()
    slow = changed(well, fast_path="python", fast_path_fault="it is not built")
    crews = iter(((well,), (well, slow, slow)))
    client = client_of(replace(view, workers=lambda: next(crews)))
    pages = [page_of(client, "/console/partitions").text for _ in range(2)]
    assert [page.count("decided in Python: it is not built.") for page in pages] == [0, 1]


def test_partitions_of_all_instances_are_shown_with_their_owners(client: TestClient) -> None:
    page = page_of(client, "/console/partitions")
    assert "orders -3 0" in page.text
    assert "orders -5 1" in page.text
    assert "unreachable" in page.text
    assert "it cannot be reached" in page.text


def test_partitions_show_how_many_warm_copies_they_have(client: TestClient) -> None:
    page = page_of(client, "/console/partitions").text
    assert "Warm copies" in page
    assert page.count("1 of 1") == 1
    assert page.count("0 of 0") == 1


def test_how_far_instances_are_is_summed_over_what_they_restore() -> None:
    restoring: dict[str, object] = {
        "instance": "a",
        "phase": "restoring",
        "restored_records": 30,
        "restore_remaining_records": 10,
    }
    done = {**restoring, "phase": "running", "restore_remaining_records": 0}
    unknown = {**restoring, "instance": "b", "restore_remaining_records": None}
    more = {**restoring, "restored_records": 0, "restore_remaining_records": 20}
    assert by_owner((done, restoring, more, unknown)) == {"a": 0.5, "b": None}


@pytest.mark.parametrize(
    ("horizon_ms", "resend_ms", "short"),
    [(1_000, 2_000, True), (2_000, 2_000, False), (None, 2_000, False), (1_000, None, False)],
)
def test_an_address_is_too_short_that_forgets_before_its_publishers_end(
    horizon_ms: int | None, resend_ms: int | None, *, short: bool
) -> None:
    assert is_short(horizon_ms, resend_ms) == short


def test_the_resend_period_of_publishers_is_given_as_a_duration(client: TestClient) -> None:
    assert "is not a duration" not in page_of(client, "/console/addresses?resend=30m").text
    assert "soon is not a duration" in page_of(client, "/console/addresses?resend=soon").text


def test_what_is_counted_leads_to_what_was_counted(client: TestClient) -> None:
    page = page_of(client, "/console/dead-letters?address=orders")
    assert "/console/dead-letters?address=orders&reason=duplicate" in page.links


def test_an_id_has_a_history_of_refusals(client: TestClient) -> None:
    page = page_of(client, "/console/ids?address=orders&id=id-1")
    (link,) = (link for link in page.links if "refusals" in link)
    shown = page_of(client, link.partition("#")[0])
    assert "/console/dead-letter?at=orders.dlq-0%407" in shown.links
    other = page_of(client, "/console/ids?address=orders&id=id-2&refusals=newest")
    assert "No match." in other.text


class ScannedInPart(FakeLetters):
    """Of an endless topic, of which a request scans 724 records: a second one finds the letter."""

    def page(
        self,
        wanted: DeadLetterFilter,
        place: object | None,
        limit: int,
        *,
        newest: bool,
        after: DeadLetterPosition | None = None,
    ) -> DeadLetterPage:
        """See `DeadLetterPort`."""
        found = super().page(wanted, None, limit, newest=newest, after=after).letters
        return DeadLetterPage(found if place == 724 else (), 724, 724 if place is None else 1_448)


@pytest.mark.parametrize(
    "path",
    [
        "/console/ids?address=orders&id=id-1&refusals=newest",
        "/console/record?at=orders-3@90&letters=newest",
        "/console/dead-letters?reason=duplicate",
    ],
)
def test_what_was_not_found_yet_is_not_said_to_be_nowhere(view: ServiceView, path: str) -> None:
    client = client_of(replace(view, letters=ScannedInPart()))

    def further(page: Page) -> str:
        (link,) = (link for link in page.links if "page_token" in link)
        return link.partition("#")[0]

    first = page_of(client, path)
    assert "No match" not in first.text
    assert "None among the newest 724." in first.text
    assert "Continue" in first.text
    second = page_of(client, further(first))
    assert "/console/dead-letter?at=orders.dlq-0%407" in "".join(second.links)
    assert "None among the next 724." in page_of(client, further(second)).text


LETTER = "/console/dead-letter?at=orders.dlq-0@7"


def test_a_duplicate_stands_beside_its_original_and_what_differs_is_named(
    client: TestClient,
) -> None:
    page = page_of(client, LETTER)
    assert "Different: value ( /secret )." in page.text
    shown = client.get(LETTER).text
    assert shown.count("<mark>") == 2
    assert "<mark>&#34;secret&#34;: 1" in "".join(shown.split("\n  "))
    assert page.text.index('"secret": 1') < page.text.index('"secret": 2')
    copied = {value for name, value in page.attributes if name == "data-copy"}
    assert copied == {"customer-5", '{"secret": 1}', '{"secret": 2}', "id-1", "acme"}
    alone = page_of(client, "/console/dead-letter?at=orders.dlq-0@8")
    assert "Original" not in alone.text


def test_an_original_that_its_topic_no_longer_has_is_said_to_be_gone(view: ServiceView) -> None:
    gone = LETTER_VIEW._replace(original="orders-3@41")
    client = client_of(replace(view, letters=FakeLetters((gone,))))
    page = page_of(client, LETTER)
    assert "The original orders-3@41 cannot be shown. No record is at orders-3@41" in page.text
    assert '"secret": 1' in page.text


def test_a_letter_whose_record_a_redrive_has_accepted_says_so_before_it_is_redriven_again(
    view: ServiceView,
) -> None:
    source = SourcePosition("orders", 3, 42, 1_699_999_999_000)
    accepted = client_of(replace(view, letters=FakeLetters((LETTER_VIEW._replace(source=source),))))
    for client, says in ((accepted, True), (client_of(view), False)):
        for path in (LETTER, "/console/redrives/count?letter=orders.dlq-0@7"):
            assert ("Accepted since." in page_of(client, path).text) == says


@pytest.mark.parametrize("mode", ["through", "forget", "bypass"])
def test_a_letter_without_an_id_that_a_redrive_accepted_says_so_too(
    view: ServiceView, mode: Mode
) -> None:
    letters = FakeLetters((LETTER_VIEW._replace(identifier=None),))
    for accepted in (0, 1):
        progress = RedriveProgress(matched=1, accepted=accepted, refused=1 - accepted)
        redrives = FakeRedrives(letters)
        redrives.know(sent_job(mode, progress))
        client = client_of(replace(view, letters=letters, redrives=redrives))
        for path in (LETTER, "/console/redrives/count?letter=orders.dlq-0@7"):
            assert ("Accepted since." in page_of(client, path).text) == bool(accepted)


def test_headers_stand_beside_those_of_the_same_name_in_order() -> None:
    def payload(*headers: tuple[str, str]) -> dict[str, object]:
        told = [{"name": name, "value": {"text": value}} for name, value in headers]
        return {"key": None, "value": None, "headers": told}

    rows = compared(
        payload(("a", "1"), ("a", "2"), ("b", "x")),
        payload(("c", "y"), ("a", "1"), ("a", "3")),
        value_differs=False,
    )
    assert [(row.name, row.differs) for row in rows] == [
        ("Key", False),
        ("Value", False),
        ("a", False),
        ("a", True),
        ("b", True),
        ("c", True),
    ]
    assert not [row for row in compared(payload(("a", "1")), None, None) if row.differs]


def test_a_value_that_is_written_in_another_way_does_not_differ(view: ServiceView) -> None:
    for value, differs in ((b'{"secret":2}', False), (b'{"secret": 3}', True)):
        letters = FakeLetters((LETTER_VIEW._replace(value=value),))
        text = page_of(client_of(replace(view, letters=letters)), LETTER).text
        assert ("Different: value" in text) == differs, text
        assert ("Key, value and headers are the same." in text) != differs


def test_a_letter_leads_to_those_beside_it_that_match(client: TestClient) -> None:
    older, newer = "&towards=older", "&towards=newer"
    step = "/console/dead-letter/step?at=orders.dlq-0@"
    assert page_of(client, f"{step}8{older}").text.count("orders.dlq-0@7")
    assert "orders.dlq-0@8" in page_of(client, f"{step}7{newer}").text
    assert "No older dead letter of orders.dlq-0." in page_of(client, f"{step}7{older}").text
    last = page_of(client, f"{step}7{newer}&reason=duplicate")
    assert "No newer dead letter of orders.dlq-0 matches." in last.text
    assert "/console/dead-letters?reason=duplicate" in last.links


def test_a_position_leads_to_its_record_and_a_dead_letter_to_its_own_page(
    asking: ServiceView, client: TestClient
) -> None:
    for path in (LETTER, "/console/dead-letters", "/console/ids?address=orders&id=id-1"):
        assert "/console/record?at=orders-3%4042" in page_of(client, path).links, path
    assert '"secret": 2' in page_of(client, "/console/record?at=orders-3@42").text
    assert (
        "secret"
        not in page_of(client_of(asking, TOKENS["viewer"]), "/console/record?at=orders-3@42").text
    )
    assert "Decided" in page_of(client, "/console/record?at=orders.dlq-0@7").text
    found = page_of(client, "/console/record?at=orders-3@90&letters=newest")
    assert "no such record" in found.text
    assert "/console/dead-letter?at=orders.dlq-0%407" in found.links
    assert "topic-partition@offset" in page_of(client, "/console/record?at=orders", 422).text


def test_the_page_of_a_record_marks_no_entry_of_the_navigation(client: TestClient) -> None:
    assert 'aria-current="page"' in client.get("/console/dead-letters").text
    assert 'aria-current="page"' not in client.get("/console/record?at=orders-3@42").text


def test_the_table_of_routes_shows_id_and_dead_letter(client: TestClient) -> None:
    shown = page_of(client, "/console/settings").text
    assert "Address, id Output, dead letter" in " ".join(shown.split())
    assert "{topic}.dlq" in shown


def test_the_search_finds_addresses_ids_and_positions(client: TestClient) -> None:
    (search,) = (form for form in page_of(client, "/").forms if form.action == "/console/find")
    assert search.fields == {"q": ""}
    assert "/console/address?name=orders" in page_of(client, "/console/find?q=ord").links
    by_id = page_of(client, "/console/find?q=id-1&letters=newest")
    assert "No address begins with it." in by_id.text
    assert {
        "/console/ids?address=orders&id=id-1",
        "/console/record?at=orders-3%4042",
        "/console/dead-letter?at=orders.dlq-0%407",
    } <= set(by_id.links)
    assert "No address remembers it" in page_of(client, "/console/find?q=nothing").text
    position = page_of(client, "/console/find?q=orders-3@42")
    assert "/console/record?at=orders-3%4042" in position.links
    assert "pairs of hexadecimal digits" in page_of(client, "/console/find?q=hex:x").text
    assert "Addresses" in page_of(client, "/console/find?q=+").text


def test_an_id_is_searched_at_further_addresses(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "SEARCHED", 1)
    first = page_of(client, "/console/find?q=id-1")
    assert "Not remembered by the 1 address searched; there are more." in first.text
    (further,) = (link for link in first.links if "page_token" in link)
    assert "orders-3@42" in page_of(client, further).text


def test_why_an_id_was_refused_has_an_answer(client: TestClient) -> None:
    text = page_of(client, "/console/ids?address=orders&id=id-1").text
    assert "Known." in text
    assert "orders-3@42" in text
    assert "19,999 more ids" in text
    assert "Not known." in page_of(client, "/console/ids?address=orders&id=id-2").text


@pytest.mark.parametrize(
    ("address", "told"),
    [("a%2Fb+c%2Bd%25%C3%A9", "x%2Fy%3Fz%23%252F"), ("orders", "hex%3Aff00"), ("orders", "")],
)
def test_any_address_and_any_id_can_be_looked_up(
    client: TestClient, address: str, told: str
) -> None:
    assert "Known." in page_of(client, f"/console/ids?address={address}&id={told}").text


def test_input_to_the_service_is_shown_as_text_and_never_as_markup(client: TestClient) -> None:
    name = "<script>alert(1)</script>"
    for path in (
        "/console/address?name=",
        "/console/ids?id=x&address=",
        "/console/addresses?prefix=",
    ):
        answer = client.get(path + name)
        assert name not in answer.text
        assert "&lt;script&gt;" in answer.text


def test_a_page_that_there_is_not_is_a_page_that_says_so(client: TestClient) -> None:
    assert "no page of the console" in page_of(client, "/console/no/such", 404).text
    assert "kind" not in page_of(client, "/console/settings/edit?kind=other", 404).text


def test_what_the_api_refuses_stands_on_the_page_in_its_words(client: TestClient) -> None:
    page = page_of(client, "/console/address?name=", 422)
    assert "an address has at least one character" in page.text
    assert "Try again" in page.text


def test_a_page_that_does_not_exist_is_not_to_be_tried_again(client: TestClient) -> None:
    assert "Try again" not in page_of(client, "/console/no/such", 404).text


def test_what_pages_load_changes_its_address_with_its_content(client: TestClient) -> None:
    loaded = [each for each in page_of(client, "/").loaded if each]
    assert len(loaded) == 3
    for place in loaded:
        assert re.fullmatch(r"/console/assets/[0-9a-f]{12}/[a-z]+\.[a-z]+", place)
        assert "immutable" in client.get(place).headers["Cache-Control"]
    assert client.get("/console/assets/x/no-such.js").status_code == 404


def test_the_console_is_no_part_of_the_api_for_programs(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert not [
        path
        for path in paths
        if not path.startswith(("/v1/", "/livez", "/readyz", "/startupz", "/metrics"))
    ]


def test_samples_are_taken_while_the_application_runs(
    view: ServiceView, client: TestClient
) -> None:
    with client:
        page = page_of(client, "/")
    assert "A sample is taken every five seconds" in page.text
    assert view.board.read().phase == "running"


def test_the_first_page_tells_that_no_samples_can_be_taken(
    view: ServiceView, client: TestClient, logged: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing() -> bytes:
        raise OSError("out of descriptors")

    monkeypatch.setattr(view.metrics, "scrape", failing)
    with client:
        assert "Sampling fails" in page_of(client, "/").text
    assert logged.getvalue().count("sample_failed") == 1


ACTING = "e\x1b[2J\x9b\u202e\u200b\u2028x"


def test_what_a_name_holds_is_seen_and_a_form_sends_it_as_it_is(client: TestClient) -> None:
    pages = ("address?name=", "addresses?prefix=", "ids?id=x&address=", "ids?address=orders&id=")
    for path in pages:
        page = page_of(client, f"/console/{path}{quote(ACTING)}")
        assert not set(page.text) & set(ACTING) - set("e[2Jx")
    assert (
        r"e\x1b[2J\x9b\u202e\u200b\u2028x"
        in page_of(client, f"/console/{pages[0]}{quote(ACTING)}").text
    )
    page = page_of(client, f"/console/{pages[0]}{quote(ACTING)}")
    assert page.form("/console/address/clear").fields["name"] == ACTING


@pytest.mark.parametrize("path", ["address?name=orders&", "settings?", "ids?address=orders&id=x&"])
def test_no_text_of_a_link_stands_in_a_note(client: TestClient, path: str) -> None:
    text = "Call evil.example: your token is over"
    told = client.get(f"/console/{path}done={quote(text)}", headers={"Accept": "text/html"}).text
    assert "evil.example" not in told.replace(quote(text), "")
    assert "note good" not in told


def test_messages_that_pass_unchecked_stand_on_the_first_page(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    """Amber where some have no id, red where all have none, and nothing where none is to be had."""
    some, every = RouteCounts("some", 10, unreadable=1), RouteCounts("every", 5, no_id=4, off=1)
    off = RouteCounts("off", 7, off=7)
    told = client_at(RUNNING._replace(routes=(some, every, off))).get("/").text
    page = Page(told)
    assert "Messages pass unchecked. Messages of the route some passed unchecked, 1" in page.text
    assert "Nothing is deduplicated. Nothing of the route every is deduplicated" in page.text
    assert "route off" not in page.text
    assert "13 of the accepted, 59 % of all" in page.text
    assert '<dt>Unchecked</dt><dd class="warm">' in told
    assert told.count('class="note warm"') == told.count('class="note bad"') == 1
    quiet = client_at(RUNNING._replace(routes=(off,))).get("/").text
    assert "<dt>Unchecked</dt><dd>" in quiet
    assert 'class="note' not in quiet


class Loop:
    """A loop that remembers one id, and may have no time."""

    def __init__(self) -> None:
        self.has_time = True
        self._answer = remembering({("orders", b"id-1"): IdLocation("orders", 3, 42, 1, 19_999)})

    def __call__(self, query: Query) -> Answer:
        """Answer a query, or be too late."""
        if not self.has_time:
            raise TimedOut("The loop did not answer within 5 s; see /v1/status for why.")
        return self._answer(query)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/console/addresses", "orders"),
        ("/console/address?name=orders", "Newest ids"),
        ("/console/ids?address=orders&id=id-1", "Known."),
        ("/console/ids?address=orders&id=id-2", "Not known."),
        ("/console/find?q=id-1", "orders-3@42"),
    ],
)
def test_a_page_has_its_last_answer_while_the_loop_has_no_time(path: str, shown: str) -> None:
    loop = Loop()
    with answering(loop) as view:
        client = client_of(view)
        usual = page_of(client, path).text
        loop.has_time = False
        page = page_of(client, path)
    assert "As of" not in usual
    assert "As of" in page.text
    assert shown in page.text
    assert "/" in page.links


def test_a_page_without_a_last_answer_leads_to_the_flow_and_names_no_path_of_the_api() -> None:
    loop = Loop()
    loop.has_time = False
    with answering(loop) as view:
        page = page_of(client_of(view), "/console/addresses", 503)
    assert "The loop did not answer within 5 s; see Flow for why." in page.text


def test_what_was_known_before_an_id_was_forgotten_is_not_shown_after() -> None:
    loop, path = Loop(), "/console/ids?address=orders&id=id-1"
    with answering(loop) as view:
        client = client_of(view)
        assert "Known." in page_of(client, path).text
        form = {"address": "orders", "id": "id-1", "reason": "tested"}
        assert (
            client.post("/console/ids/forget", data=form, headers={"Origin": HERE}).status_code
            == 303
        )
        loop.has_time = False
        assert "Known." not in page_of(client, path).text


def test_duplicates_that_differ_stand_on_the_first_page(
    client_at: Callable[[ServiceStatus], TestClient],
) -> None:
    """Amber, and nothing where all that were compared are the same."""
    orders = RouteCounts("orders", 10, compared=4, different=1)
    found = client_at(RUNNING._replace(routes=(orders,))).get("/").text
    page = Page(found)
    assert (
        "Duplicates differ from their originals. Duplicates of the route orders have" in page.text
    )
    assert "1 of 4 compared differ" in page.text
    assert '<dt>Duplicates</dt><dd class="warm">' in found
    quiet = client_at(RUNNING._replace(routes=(orders._replace(different=0),))).get("/").text
    assert "<dt>Duplicates</dt><dd>" in quiet
    assert 'class="note' not in quiet
