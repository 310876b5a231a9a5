"""Why: a place where no record can be is answered without looking through dead letters."""

import json
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.scripted import Reply, scripted

OWNED = {"topic": "orders", "partition": 3, "end_offset": 100, "committed_offset": 99}
ABSENT = Reply(404, {"type": "no-dead-letter", "title": "", "status": 404, "detail": ""})
PARTITIONS = Reply(200, {"partitions": [OWNED], "complete": True})
NO_LETTERS = Reply(200, {"dead_letters": [], "scanned": 0, "next_page_token": None})
RECORD = {
    "topic": "orders",
    "partition": 3,
    "offset": 98,
    "time": "2023-11-14T22:13:20Z",
    "size_bytes": 1,
    "address": "orders",
    "id": None,
    "id_error": "the record has nothing for {json:/id}",
    "payload": {"key": None, "value": None, "headers": []},
}
THERE = Reply(200, RECORD)


def with_id(identifier: str, address: str = "orders") -> Reply:
    """The record as its route reads it."""
    return Reply(200, {**RECORD, "address": address, "id": identifier, "id_error": None})


HIDDEN = Reply(403, {"type": "role-missing", "title": "", "status": 403, "detail": "No."})
ABSENCE = {"type": "no-record", "title": "", "detail": "No record is there.", "absence": "gap"}
GAP = Reply(404, {**ABSENCE, "status": 404})
LETTER = {
    "topic": "orders.dlq",
    "partition": 0,
    "offset": 7,
    "reason": "duplicate",
    "cause": "its id was accepted at orders-3@42 already",
    "original": "orders-3@42",
    "time": "2023-11-14T22:13:20Z",
    "address": "orders",
    "id": "id-1",
    "strategy": "ring",
    "source": {"topic": "orders", "partition": 3, "offset": 90, "time": "2023-11-14T22:13:20Z"},
    "redrives": 0,
    "size_bytes": 23,
}


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("orders-9@1", "the input orders has no partition 9"),
        ("orders-3@100", "orders-3 ends at offset 100"),
    ],
)
def test_a_position_outside_the_inputs_is_answered_without_a_search(
    shell: Shell, place: str, sentence: str
) -> None:
    with scripted(ABSENT, PARTITIONS) as script:
        ran = shell("why", place, "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err
    assert len(script.asked) == 2


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("nosuch-0@1", "nosuch is not an input now; see"),
        ("orders.unique-0@1", "orders.unique is an output of route orders, not an input; see"),
    ],
)
def test_a_position_of_an_output_is_told_from_one_of_an_unknown_topic(
    shell: Shell, place: str, sentence: str
) -> None:
    route = {"name": "orders", "inputs": ["orders", "flights"], "output": "{topic}.unique"}
    routes = Reply(200, {"routes": [route], "next_page_token": None, "complete": True})
    with scripted(ABSENT, PARTITIONS, routes) as script:
        ran = shell("why", place, "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (THERE, "it is not decided yet: orders-3 is at offset 99"),
        (HIDDEN, "it is not decided yet: orders-3 is at offset 99"),
        (GAP, "No record is there.\n"),
    ],
)
def test_an_offset_that_is_not_reached_has_a_record_or_none(
    shell: Shell, reply: Reply, sentence: str
) -> None:
    with scripted(ABSENT, PARTITIONS, reply) as script:
        ran = shell("why", "orders-3@99", "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err
    assert script.asked[2].path == "/v1/records/orders/3/99"


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (THERE, "It was accepted, or it is a duplicate that its address"),
        (HIDDEN, "It was accepted, or it is a duplicate that its address"),
        (GAP, "No record is there. None of the 100,000 newest dead letters is of this record."),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_record_without_a_dead_letter_is_said_to_be_accepted_only_if_it_is_there(
    shell: Shell, reply: Reply, sentence: str, *, complete: bool
) -> None:
    partitions = Reply(200, {"partitions": [OWNED], "complete": complete})
    with scripted(ABSENT, partitions, NO_LETTERS, reply) as script:
        ran = shell("why", "orders-3@98", "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err
    assert len(script.asked) == 4


@pytest.mark.parametrize(
    ("following", "sentence"),
    [
        (
            [{"topic": "orders.dlq", "partition": 0, "offset": 9}],
            " dead letter of the partition is orders.dlq-0@9",
        ),
        ([], "No record is there.\n"),
    ],
)
def test_an_offset_of_a_dead_letter_topic_without_a_dead_letter_leads_to_the_next_one(
    shell: Shell, following: list[dict[str, object]], sentence: str
) -> None:
    letters = Reply(200, {"dead_letters": following, "scanned": 1, "next_page_token": None})
    with scripted(GAP, letters) as script:
        ran = shell("why", "orders.dlq-0@8", "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err
    assert parse_qs(urlsplit(script.asked[1].path).query)["after"] == ["orders.dlq-0@8"]


def test_the_letter_of_a_record_is_asked_for_by_its_position_until_so_many_were_searched(
    shell: Shell,
) -> None:
    letters = Reply(200, {"dead_letters": [], "scanned": 40, "next_page_token": "more"})
    with scripted(ABSENT, PARTITIONS, letters, letters, letters, HIDDEN) as script:
        ran = shell("why", "orders-3@98", "--among", "100", "--url", script.url)
    assert (ran.code, "None of the 100 newest dead letters" in ran.err) == (3, True)
    searches = [parse_qs(urlsplit(each.path).query) for each in script.asked[2:5]]
    assert [each.get("page_token") for each in searches] == [None, ["more"], ["more"]]
    assert {(*each["source"], *each["page_size"]) for each in searches} == {("orders-3@98", "1")}


def known_by(accepted: int) -> dict[str, object]:
    """What the address knows of the id: the offset of the record that was accepted."""
    sighting = {
        "topic": "orders",
        "partition": 3,
        "offset": accepted,
        "time": "2023-11-14T22:13:20Z",
        "slots_to_eviction": 100,
    }
    known = {"address": "orders", "id": "id-1", "known": True, "sightings": [sighting]}
    return {**known, "complete": True}


def found_at(*addresses: str, more: str | None = None) -> Reply:
    holding = [{"address": each, "sightings": []} for each in addresses]
    return Reply(200, {"addresses": holding, "next_page_token": more, "complete": True})


def test_a_record_without_an_id_says_what_it_lacks(shell: Shell) -> None:
    with scripted(ABSENT, PARTITIONS, NO_LETTERS, THERE) as script:
        ran = shell("why", "orders-3@98", "--url", script.url)
    sentence = " Its id is not known: the record has nothing for {json:/id}. It was accepted, or"
    assert (ran.code, sentence in ran.err) == (3, True), ran.err


def test_a_record_that_its_address_remembers_was_accepted(shell: Shell) -> None:
    known = Reply(200, known_by(98))
    with scripted(ABSENT, PARTITIONS, NO_LETTERS, with_id("id-1"), known) as script:
        ran = shell("why", "orders-3@98", "--url", script.url)
    assert (ran.code, "accepted record\torders-3@98" in ran.out) == (0, True)
    assert ran.err == "orders-3@98 was accepted: it is the original of the id id-1 at orders.\n"


def test_the_address_of_an_accepted_record_is_found_by_its_id(shell: Shell) -> None:
    nothing = Reply(200, {**known_by(98), "known": False, "sightings": []})
    pages = (found_at("eu", more="2"), found_at("us"))
    here = Reply(200, {**known_by(98), "address": "us"})
    replies = (with_id("hex:ff00", "asia"), nothing, pages[0], nothing, pages[1], here)
    with scripted(ABSENT, PARTITIONS, NO_LETTERS, *replies) as script:
        ran = shell("why", "orders-3@98", "--url", script.url)
    assert (ran.code, " at us.\n" in ran.err) == (0, True)
    searches = [parse_qs(urlsplit(each.path).query) for each in script.asked[4:]]
    assert {tuple(each.get("id", each.get("name", []))) for each in searches} == {("hex:ff00",)}
    addresses = [each.get("address") for each in searches]
    assert addresses == [["asia"], None, ["eu"], None, ["us"]]


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (known_by(42), "of this record, but as that of orders-3@42 at orders. It was accepted and"),
        (
            {**known_by(42), "sightings": []},
            "Its id id-1 is not remembered as that of this record.",
        ),
    ],
)
def test_a_record_that_nothing_remembers_has_possibilities(
    shell: Shell, known: dict[str, object], sentence: str
) -> None:
    replies = (with_id("id-1"), Reply(200, known), found_at())
    with scripted(ABSENT, PARTITIONS, NO_LETTERS, *replies) as script:
        ran = shell("why", "orders-3@98", "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err


@pytest.mark.parametrize(("accepted", "is_redriven"), [(90, True), (42, False)])
def test_a_record_that_a_redrive_let_through_is_said_to_be_the_accepted_one(
    shell: Shell, accepted: int, *, is_redriven: bool
) -> None:
    with scripted(Reply(200, LETTER), Reply(200, known_by(accepted)), jobs()) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url)
    assert ran.code == 0
    assert ("A redrive has accepted it since" in ran.err) == is_redriven


def jobs(*progress: tuple[int, int], mode: str = "bypass") -> Reply:
    """The redrives that have sent a dead letter: how many each accepted and refused."""
    redrives = [
        {
            "id": "7-x",
            "mode": mode,
            "progress": {
                "matched": accepted + refused,
                "accepted": accepted,
                "refused": refused,
            },
        }
        for accepted, refused in progress
    ]
    return Reply(200, {"redrives": redrives, "next_page_token": None})


@pytest.mark.parametrize("mode", ["through", "forget", "bypass"])
@pytest.mark.parametrize("letter", [LETTER, {**LETTER, "id": None, "reason": "missing-id"}])
def test_a_letter_whose_redrive_accepted_all_that_it_sent_was_accepted_whatever_its_id_is(
    shell: Shell, letter: dict[str, object], mode: str
) -> None:
    known = () if letter["id"] is None else (Reply(200, known_by(42)),)
    with scripted(Reply(200, letter), *known, jobs((2, 0), mode=mode)) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, typed="")
    assert ran.code == 0
    assert ran.err == (
        f"A redrive has accepted it since, with mode {mode}, so the output has it: "
        "ringfence redrive show 7-x\n"
    )
    asked = parse_qs(urlsplit(script.asked[-1].path).query)
    assert asked["letter"] == ["orders.dlq-0@7"]


def test_a_letter_of_which_no_redrive_tells_the_decision_leads_to_the_redrive(
    shell: Shell,
) -> None:
    replies = (Reply(200, KNOWN), jobs((1, 1)), page_of(LETTER), Reply(200, LETTER))
    with scripted(Reply(200, LETTER), *replies) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url)
    sentence = "has sent it since, and has accepted 1 of 2 dead letters: ringfence redrive show 7-x"
    assert (ran.code, sentence in ran.err) == (0, True), ran.err


def page_of(*letters: Mapping[str, object], more: str | None = None) -> Reply:
    return Reply(200, {"dead_letters": letters, "scanned": 60, "next_page_token": more})


AGAIN = {**LETTER, "offset": 12, "time": "2023-11-14T22:14:20Z", "redrives": 1}
KNOWN = known_by(42)


def test_a_letter_that_a_redrive_refused_again_leads_to_the_newest_of_its_record(
    shell: Shell,
) -> None:
    replies = (page_of(more="1"), page_of(AGAIN), Reply(200, AGAIN))
    started = (Reply(200, LETTER), Reply(200, KNOWN), jobs((0, 1)))
    with scripted(*started, *replies) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, "--json")
    assert "it again, as orders.dlq-0@12: ringfence why orders.dlq-0@12\n" in ran.err
    told = json.loads(ran.out)
    assert (told["dead_letter"]["offset"], told["newer_dead_letter"]["offset"]) == (7, 12)
    asked = parse_qs(urlsplit(script.asked[3].path).query)
    assert (asked["source"], asked["from"]) == (["orders-3@90"], [LETTER["time"]])


def test_a_letter_that_no_redrive_sent_is_the_last_word(shell: Shell) -> None:
    with scripted(Reply(200, LETTER), Reply(200, KNOWN), jobs()) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, "--json")
    assert (ran.err, json.loads(ran.out)["newer_dead_letter"]) == ("", None)
    assert len(script.asked) == 3


def test_a_search_for_a_later_letter_that_is_too_long_names_the_command_that_goes_on(
    shell: Shell,
) -> None:
    replies = (Reply(200, LETTER), Reply(200, KNOWN), jobs((0, 1)), page_of(more="1"))
    with scripted(*replies) as script:
        ran = shell("why", "orders.dlq-0@7", "--among", "100", "--url", script.url)
    assert (ran.code, len(script.asked)) == (0, 5)
    assert "To search more: ringfence why orders-3@90 --among 1000\n" in ran.err


def test_a_letter_without_an_id_says_who_has_to_do_what(shell: Shell) -> None:
    cause = "it has no _DUPL_ID, and the route requires one"
    letter = {**LETTER, "reason": "missing-id", "cause": cause, "id": None, "original": None}
    with scripted(Reply(200, letter), jobs()) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, typed="")
    assert (ran.code, cause in ran.out) == (0, True)
    assert "duplicate of" not in ran.out
    assert "earlier redrives" not in ran.out
    assert ran.err.splitlines() == [
        "",
        "The producer has to set what is missing and send this message again.",
        "Or the route has to pass records without an id: set its missing_id.",
        "Then, to decide this one again: ringfence redrive start --mode through orders.dlq-0@7",
        "To write it to the output unchecked: ringfence redrive start --mode bypass orders.dlq-0@7",
    ]


def test_the_newest_letter_of_a_record_is_not_searched_again(shell: Shell) -> None:
    replies = (page_of(LETTER), Reply(200, LETTER), Reply(200, KNOWN), jobs((0, 1)))
    with scripted(ABSENT, PARTITIONS, *replies) as script:
        ran = shell("why", "orders-3@90", "--url", script.url)
    assert (ran.code, "refused it again" in ran.err, len(script.asked)) == (0, False, 6)


@pytest.mark.parametrize(
    ("letter", "replies", "did"),
    [
        (LETTER, (Reply(200, known_by(90)),), "accepted"),
        ({**LETTER, "id": None}, (jobs((1, 0)),), "accepted"),
        ({**LETTER, "id": None}, (jobs((1, 1)),), "sent"),
    ],
)
def test_a_redrive_of_a_letter_that_was_redriven_before_is_announced_as_such(
    shell: Shell, letter: dict[str, object], replies: tuple[Reply, ...], did: str
) -> None:
    preview = {
        "matched": 1,
        "redrives": 1,
        "complete": True,
        "doubles": 1,
        "skipped": {},
        "samples": [letter],
        "by_reason": {"duplicate": 1},
        "by_address": {"orders": 1},
        "by_topic": {"orders.dlq": 1},
    }
    words = ("redrive", "start", "--mode", "forget", "orders.dlq-0@7", "--dry-run")
    with scripted(Reply(200, preview), *replies) as script:
        ran = shell(*words, "--url", script.url)
    assert ran.code == 0
    assert f"orders.dlq-0@7: a redrive has {did} it since" in ran.err


def content(text: str | None, *, truncated: bool = False) -> dict[str, object] | None:
    """A value as the API returns it."""
    if text is None:
        return None
    return {"text": text, "base64": None, "size_bytes": len(text), "truncated": truncated}


def with_value(value: dict[str, object] | None) -> dict[str, object]:
    return {"payload": {"key": None, "value": value, "headers": []}}


CUT = content("x" * 10, truncated=True)
NOT_THERE = Reply(404, {**ABSENCE, "status": 404, "detail": "orders-3 begins at offset 50 now."})
UNREADABLE = Reply(200, {**RECORD, **with_value(CUT)})


@pytest.mark.parametrize(
    ("value", "reply", "differs", "sentence"),
    [
        ("a", "b", True, "differs from that of the original"),
        ('{"a":1,"b":2}', '{"b": 2, "a": 1}', False, "the same as that of the original"),
        (None, None, False, "the same as that of the original"),
        (None, "", True, "differs from that of the original"),
        ("a", NOT_THERE, None, "not compared: orders-3 begins at offset 50 now."),
        ("a", UNREADABLE, None, "not compared: it is too large"),
    ],
)
def test_a_duplicate_is_compared_with_its_original(
    shell: Shell,
    value: str | None,
    reply: Reply | str | None,
    differs: bool | None,  # noqa: FBT001 - a parameter of the test
    sentence: str,
) -> None:
    letter = Reply(200, {**LETTER, **with_value(content(value))})
    if not isinstance(reply, Reply):
        reply = Reply(200, {**RECORD, **with_value(content(reply))})
    known, none = Reply(200, known_by(42)), jobs()
    for form in ([], ["--json"]):
        with scripted(letter, known, none, reply) as script:
            ran = shell("why", "orders.dlq-0@7", *form, "--url", script.url)
        assert script.asked[-1].path == "/v1/records/orders/3/42"
        if form:
            assert json.loads(ran.out)["content_differs"] is differs
        else:
            assert sentence in ran.out


def test_a_duplicate_whose_payload_may_not_be_read_is_not_compared(shell: Shell) -> None:
    letter = Reply(200, {**LETTER, "payload": None})
    with scripted(letter, Reply(200, known_by(42)), jobs()) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url)
    assert "not compared: that needs the role payload:read" in ran.out
    assert len(script.asked) == 3
