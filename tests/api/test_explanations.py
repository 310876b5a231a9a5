"""Explanations: what was decided about a record or an id, why, and what has happened since."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ringfence_api.base64url import encode
from ringfence_api.parameters import token_of
from ringfence_api.ports import ServiceView
from ringfence_service.dedup.dead_letter import SourcePosition
from ringfence_service.metadata.instances import Registration
from ringfence_service.metadata.redrive_job import DeadLetterRange
from ringfence_service.peers.protocol import InstanceStatus, StatusReply
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    RedriveProgress,
)
from ringfence_service.queries.errors import Unavailable
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_letters import FOREIGN, LETTER, ORIGINAL, FakeLetters, FakeRedrives, sent_job
from tests.api.fake_service import RUNNING, RUNNING_PARTITION, Clock, make_view
from tests.api.guarded import TOKENS, client_of, guarded, settings
from tests.api.test_dead_letters import client_with
from tests.support.statuses import changed

__all__ = ["client_with"]  # a fixture
EXPLAIN = "/v1/records:explain"
DECIDED = RUNNING._replace(
    partitions=(changed(RUNNING_PARTITION, committed_offset=99),), partitions_total=1
)


class AloneInGroup:
    """The only instance of the group."""

    async def instance_statuses(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        assert timeout_s > 0
        own = Registration("0", "http://127.0.0.1:8080", 0, "0.1.0")
        return (InstanceStatus(own, True, StatusReply("0.1.0", 7, DECIDED), None),)  # noqa: FBT003


class Letters(FakeLetters):
    """Dead letters, and records of the input orders-3 beside them."""

    def __init__(
        self,
        *letters: DeadLetterView,
        records: tuple[InputRecord, ...] = (ORIGINAL,),
        page_size: int | None = None,
        is_busy: bool = False,
    ) -> None:
        super().__init__(letters)
        self._records = {each.position: each for each in records}
        self._page_size, self._is_busy = page_size, is_busy

    def record(self, place: DeadLetterPosition) -> InputRecord | Absence:
        return self._records.get(place) or super().record(place)

    def page(
        self,
        wanted: DeadLetterFilter,
        place: object | None,
        limit: int,
        *,
        newest: bool,
        after: DeadLetterPosition | None = None,
    ) -> DeadLetterPage:
        """With a page size, no page but the third has dead letters."""
        if self._is_busy:
            raise Unavailable("4 requests are already reading dead letters; try again.")
        if self._page_size is None:
            return super().page(wanted, place, limit, newest=newest, after=after)
        number = 0 if place is None else int(str(place))
        if number < 2:
            return DeadLetterPage((), self._page_size, number + 1)
        found = super().page(wanted, None, limit, newest=newest, after=after)
        return found._replace(scanned=self._page_size)


Explain = Callable[..., dict[str, Any]]


@pytest.fixture
def explain(clock: Clock, inbox: QueryInbox) -> Explain:
    """Ask a service with these dead letters and redrives, all of whose instances answer."""
    view = make_view(DECIDED, clock, inbox)

    def ask(letters: FakeLetters, *jobs: RedriveProgress, status: int = 200, **query: Any) -> Any:
        redrives = FakeRedrives(letters)
        for number, progress in enumerate(jobs):
            job = sent_job("bypass", progress)
            redrives.know(job._replace(id=f"{number}-sent"))
        whole = replace(view, letters=letters, redrives=redrives, fleet=AloneInGroup())
        response = client_of(whole).get(EXPLAIN, params=query)
        assert response.status_code == status, response.text
        return response.json()

    return ask


def record_at(offset: int, **fields: Any) -> InputRecord:
    return ORIGINAL._replace(position=DeadLetterPosition("orders", 3, offset), **fields)


def letter_of(offset: int, at: int = 7, **fields: Any) -> DeadLetterView:
    """The dead letter, at an offset of its topic, of the record at an offset of its input."""
    place = DeadLetterPosition("orders.dlq", 0, at)
    source = SourcePosition("orders", 3, offset, 1_699_999_999_000)
    return LETTER._replace(position=place, source=source, **fields)


def test_a_dead_letter_is_explained_with_its_original(explain: Explain) -> None:
    found = explain(Letters(LETTER), at="orders.dlq-0@7")
    assert found["decision"] == "refused"
    assert found["sentence"] == (
        "orders-3@90 was not accepted: its id was accepted at orders-3@42 already."
    )
    assert (found["dead_letter"]["offset"], found["original"]["offset"]) == (7, 42)
    assert (found["content_differs"], found["original_error"]) == (True, None)
    assert found["id"]["sightings"][0]["offset"] == 42
    assert (found["accepted_since"], found["since"], found["redrives"]) == (False, None, [])


def test_the_record_of_a_dead_letter_leads_to_the_same_explanation(explain: Explain) -> None:
    letters = Letters(LETTER, records=(ORIGINAL, record_at(90)))
    by_record = explain(letters, at="orders-3@90")
    assert by_record == {
        **explain(letters, at="orders.dlq-0@7"),
        "position": "orders-3@90",
        "searched": 1,
    }


def test_a_record_that_retention_has_removed_is_explained_by_its_dead_letter(
    explain: Explain,
) -> None:
    assert explain(Letters(letter_of(2)), at="orders-3@2")["decision"] == "refused"
    gone = explain(Letters(), at="orders-3@2", status=404)
    assert gone["absence"] == "deleted"
    assert gone["detail"].endswith("There are no dead letters to search.")


@pytest.mark.parametrize(
    ("value", "original", "differs"),
    [
        (b"a", b"a", False),
        (b"a", b"b", True),
        (b'{"a":1,"b":2}', b'{"b": 2, "a": 1}', False),
        (None, None, False),
        (None, b"", True),
        (b"x" * 100_000 + b"y", b"x" * 100_000 + b"z", True),
    ],
)
def test_a_duplicate_is_compared_as_a_whole_with_its_original(
    explain: Explain, value: bytes | None, original: bytes | None, *, differs: bool
) -> None:
    records = (ORIGINAL._replace(value=original),)
    found = explain(Letters(LETTER._replace(value=value), records=records), at="orders.dlq-0@7")
    assert found["content_differs"] is differs


def test_an_original_that_is_gone_is_not_compared(explain: Explain) -> None:
    found = explain(Letters(LETTER._replace(original="orders-3@3")), at="orders.dlq-0@7")
    assert (found["original"], found["content_differs"]) == (None, None)
    assert found["original_error"] == "orders-3@3 was deleted: orders-3 begins at offset 4 now."


def test_a_viewer_is_told_the_decision_and_no_payload(
    client_with: Callable[[str], TestClient],
) -> None:
    response = client_with("viewer").get(f"{EXPLAIN}?at=orders.dlq-0@7")
    found = response.json()
    assert (found["decision"], found["original"]) == ("refused", None)
    assert found["original_error"] == "That needs the role payload:read."
    assert not any(secret in response.text for secret in ("customer-5", "secret", "acme"))


@pytest.mark.parametrize(
    ("jobs", "accepted", "since"),
    [
        ((), False, None),
        (
            (RedriveProgress(matched=2, accepted=2),),
            True,
            "The redrive 0-sent has accepted it since, with mode bypass, so the output has it.",
        ),
        (
            (RedriveProgress(matched=2, accepted=1),),
            None,
            "The redrive 0-sent has sent it since, and has accepted 1 of 2 dead letters.",
        ),
        (
            (RedriveProgress(matched=2, accepted=2), RedriveProgress(matched=1, refused=1)),
            True,
            "The redrive 0-sent has accepted it since, with mode bypass, so the output has it.",
        ),
    ],
)
@pytest.mark.parametrize("identifier", ["id-1", None])
def test_a_redrive_that_has_accepted_all_that_it_sent_has_accepted_the_record(
    explain: Explain,
    jobs: tuple[RedriveProgress, ...],
    accepted: bool | None,  # noqa: FBT001 - a parameter of the test
    since: str | None,
    identifier: str | None,
) -> None:
    letters = Letters(LETTER._replace(identifier=identifier))
    found = explain(letters, *jobs, at="orders.dlq-0@7")
    assert (found["accepted_since"], found["since"]) == (accepted, since)
    assert [each["id"] for each in found["redrives"]] == [
        f"{number}-sent" for number in reversed(range(len(jobs)))
    ]


def test_a_record_whose_id_is_remembered_of_it_was_accepted_since(explain: Explain) -> None:
    found = explain(Letters(letter_of(42)), at="orders.dlq-0@7")
    assert (found["accepted_since"], "it is the accepted record now" in found["since"]) == (
        True,
        True,
    )


def test_a_redrive_that_was_refused_leads_to_the_newest_dead_letter_of_the_record(
    explain: Explain,
) -> None:
    again = letter_of(90, at=150, redrives=1)
    refused = RedriveProgress(matched=1, refused=1)
    found = explain(Letters(LETTER, again), refused, at="orders.dlq-0@7")
    assert (found["accepted_since"], found["newer_dead_letter"]["offset"]) == (False, 150)
    assert found["since"] == "A redrive refused it again, as orders.dlq-0@150."
    newest = explain(Letters(LETTER, again), refused, at="orders-3@90")
    assert (newest["dead_letter"]["offset"], newest["newer_dead_letter"]) == (150, None)


def test_a_search_ends_after_a_page_and_continues_with_its_token(explain: Explain) -> None:
    letters = Letters(letter_of(60), records=(record_at(60, identifier=b"id-9"),), page_size=50)
    seen, token = [], ""
    for _ in range(3):
        found = explain(letters, at="orders-3@60", page_token=token)
        token = found["next_page_token"]
        seen.append((found["decision"], found["searched"], token is not None))
    assert seen == [("unknown", 50, True), ("unknown", 100, True), ("refused", 150, False)]


def test_a_search_for_a_newer_dead_letter_continues_too(explain: Explain) -> None:
    letters, refused = Letters(LETTER, page_size=50), RedriveProgress(matched=1, refused=1)
    first = explain(letters, refused, at="orders.dlq-0@7")
    assert first["since"].endswith(
        "None of the 50 newest dead letters says that it was refused again."
    )
    assert (first["accepted_since"], first["searched"]) == (None, 50)
    second = explain(letters, refused, at="orders.dlq-0@7", page_token=first["next_page_token"])
    assert second["searched"] == 100


@pytest.mark.parametrize(
    "token",
    ["x", *map(token_of, ([1], ["a", 1], [-1, 0], [2**53, 0])), encode(b"[%b,0]" % (b"9" * 4300))],
)
def test_another_page_token_is_refused(explain: Explain, token: str) -> None:
    letters = Letters(records=(record_at(60),))
    found = explain(letters, at="orders-3@60", page_token=token, status=422)
    assert "page token" in found["detail"]


def test_a_record_that_an_address_remembers_was_accepted(explain: Explain) -> None:
    found = explain(Letters(), at="orders-3@42")
    assert (found["decision"], found["id"]["id"]) == ("accepted", "id-1")
    sentence = "orders-3@42 was accepted: it is the original of the id id-1 at orders."
    assert found["sentence"] == sentence


def test_the_address_of_an_accepted_record_is_found_by_its_id(explain: Explain) -> None:
    elsewhere = record_at(45, identifier=b"x/y?z#%2F", address="orders")
    found = explain(Letters(records=(elsewhere,)), at="orders-3@45")
    assert (found["decision"], found["id"]["address"]) == ("accepted", "a/b c+d%é")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (
            record_at(60, identifier=None, id_error="the record has nothing for {json:/id}"),
            "Its id is not known: the record has nothing for {json:/id}. It was accepted, or",
        ),
        (
            record_at(60),
            " as that of this record, but as that of orders-3@42 at orders. It was accepted and",
        ),
        (
            record_at(60, identifier=b"id-9"),
            "Its id id-9 is not remembered as that of this record. It was accepted and its id is",
        ),
    ],
)
def test_a_record_that_nothing_remembers_has_possibilities(
    explain: Explain, record: InputRecord, sentence: str
) -> None:
    found = explain(Letters(records=(record,)), at="orders-3@60")
    assert (found["decision"], sentence in found["sentence"]) == ("unknown", True), found
    assert "There are no dead letters to search." in found["sentence"]


def test_a_topic_that_was_an_input_is_explained_by_its_dead_letters(explain: Explain) -> None:
    source = SourcePosition("former", 0, 5, 1_699_999_999_000)
    found = explain(Letters(LETTER._replace(source=source)), at="former-0@5")
    assert (found["decision"], found["dead_letter"]["offset"]) == ("refused", 7)


def test_while_an_instance_does_not_answer_no_record_is_said_to_be_decided(
    view: ServiceView,
) -> None:
    letters = Letters(records=(record_at(60, identifier=b"id-9"),))
    client = client_of(replace(view, letters=letters))
    found = client.get(f"{EXPLAIN}?at=orders-3@60").json()
    assert found["sentence"].startswith("orders-3@60 may not be decided yet.")


def test_without_a_search_a_record_is_explained_by_its_id_alone(explain: Explain) -> None:
    letters = Letters(LETTER, records=(ORIGINAL, record_at(60)))
    unknown = explain(letters, at="orders-3@60", search=False)
    assert (unknown["searched"], "newest dead letters" in unknown["sentence"]) == (0, False)
    assert explain(letters, at="orders-3@42", search=False)["decision"] == "accepted"
    refused = RedriveProgress(matched=1, refused=1)
    again = Letters(LETTER, letter_of(90, at=12, redrives=1))
    found = explain(again, refused, at="orders.dlq-0@7", search=False)
    assert (found["newer_dead_letter"], found["accepted_since"]) == (None, None)


def test_a_search_that_is_refused_does_not_hide_the_dead_letter(explain: Explain) -> None:
    letters, nothing = Letters(LETTER, is_busy=True), Letters(is_busy=True)
    found = explain(letters, RedriveProgress(matched=1, refused=1), at="orders.dlq-0@7")
    assert (found["decision"], found["accepted_since"]) == ("refused", None)
    assert "Whether it was refused again cannot be looked up now: 4 requests" in found["since"]
    absent = explain(nothing, at="orders.dlq-0@6", status=404)
    assert absent["absence"] == "gap"


def test_a_record_that_was_refused_again_and_then_accepted_was_accepted_since(
    explain: Explain, clock: Clock, inbox: QueryInbox
) -> None:
    again = letter_of(90, at=150, redrives=1)
    letters = Letters(LETTER, again)
    redrives = FakeRedrives(letters)
    redrives.know(sent_job("through", RedriveProgress(matched=1, refused=1)))
    spans = (DeadLetterRange("orders.dlq", 0, 100, 200),)
    second = sent_job("bypass", RedriveProgress(matched=1, accepted=1))
    redrives.know(second._replace(id="2-sent", spans=spans))
    view = make_view(DECIDED, clock, inbox)
    whole = replace(view, letters=letters, redrives=redrives, fleet=AloneInGroup())
    found = client_of(whole).get(f"{EXPLAIN}?at=orders.dlq-0@7").json()
    assert (found["accepted_since"], found["newer_dead_letter"]["offset"]) == (True, 150)
    assert found["since"].startswith("The redrive 2-sent has accepted it since")
    assert explain(Letters(again), at="orders.dlq-0@150")["accepted_since"] is None


def test_while_the_id_cannot_be_looked_up_no_record_is_said_not_to_be_accepted(
    clock: Clock, inbox: QueryInbox
) -> None:
    restoring = changed(RUNNING_PARTITION, phase="restoring")
    view = make_view(DECIDED._replace(partitions=(restoring,)), clock, inbox)
    client = client_of(replace(view, letters=Letters(LETTER)))
    found = client.get(f"{EXPLAIN}?at=orders.dlq-0@7").json()
    assert (found["accepted_since"], found["id"]) == (None, None)
    assert found["id_error"].startswith("Not restored: 1 of 1 owned partitions")


def test_a_foreign_record_was_not_decided(explain: Explain) -> None:
    found = explain(Letters(LETTER, FOREIGN), at="orders.dlq-0@8")
    assert (found["decision"], found["dead_letter"]["is_ours"]) == ("unknown", False)
    assert found["sentence"] == "orders.dlq-0@8 is a foreign record: another program wrote it."


def test_a_viewer_is_not_told_an_id_that_no_address_remembers(
    view: ServiceView, tmp_path: Path
) -> None:
    secret = Letters(records=(record_at(60, identifier=b"someone@example.org"),))
    asking = guarded(replace(view, letters=secret), settings(tmp_path))
    viewer, admin = (client_of(asking, TOKENS[role]) for role in ("viewer", "admin"))
    shown = [each.get(f"{EXPLAIN}?at=orders-3@60").text for each in (viewer, admin)]
    assert ["someone@example.org" in each for each in shown] == [False, False]


def test_a_record_at_or_above_the_committed_offset_is_not_decided(explain: Explain) -> None:
    found = explain(Letters(records=(record_at(99),)), at="orders-3@99")
    sentence = "orders-3@99 is not decided yet: orders-3 is at offset 99."
    assert (found["decision"], found["sentence"]) == ("undecided", sentence)


@pytest.mark.parametrize(
    ("at", "absence", "sentence"),
    [
        ("orders-3@100", "end", "No record is at orders-3@100 yet: orders-3 ends at offset 100."),
        ("orders-9@1", "partition", "orders has no partition 9."),
        (
            "nosuch-0@1",
            "topic",
            "nor an input of this group. None of the 1 newest dead letters is of this record.",
        ),
        ("out-0@1", "topic", "out-0@1 is not a dead letter: out is an output of orders."),
        ("orders.dlq-0@6", "gap", " The next dead letter of the partition is orders.dlq-0@7."),
        ("orders.dlq-0@99", "gap", "or compaction removed the record."),
        ("orders-3@99", "gap", "or compaction removed the record."),
    ],
)
def test_a_position_where_no_record_is_says_what_is_there(
    explain: Explain, at: str, absence: str, sentence: str
) -> None:
    found = explain(Letters(LETTER), at=at, status=404)
    assert (found["absence"], found["detail"].endswith(sentence)) == (absence, True), found


@pytest.mark.parametrize(
    ("address", "identifier", "decision", "sentence"),
    [
        ("orders", "id-1", "accepted", "this id is a duplicate of orders-3@42."),
        ("orders", "", "accepted", "this id is a duplicate of orders-3@43."),
        ("orders", "id-9", "unknown", "orders does not know the id: a record with this id is"),
        ("nosuch", "id-1", "unknown", "No record of the address nosuch has been seen."),
    ],
)
def test_an_id_is_explained_by_what_its_address_remembers(
    explain: Explain, address: str, identifier: str, decision: str, sentence: str
) -> None:
    found = explain(Letters(), address=address, id=identifier)
    assert (found["decision"], sentence in found["sentence"]) == (decision, True), found
    assert (found["id"]["known"], found["position"]) == (decision == "accepted", None)


@pytest.mark.parametrize(
    "query",
    [{}, {"address": "orders"}, {"id": "x"}, {"at": "orders-3@1", "address": "orders", "id": "x"}],
)
def test_exactly_one_subject_is_named(explain: Explain, query: dict[str, str]) -> None:
    found = explain(Letters(), status=422, **query)
    assert found["detail"] == "Name a position with at, or an id with address and id."
