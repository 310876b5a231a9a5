"""Why: one question to the API, continued while it is not answered, and printed with what to do."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.scripted import Reply, scripted

TIME = "2023-11-14T22:13:20Z"
LETTER = {
    "topic": "orders.dlq",
    "partition": 0,
    "offset": 7,
    "reason": "duplicate",
    "cause": "its id was accepted at orders-3@42 already",
    "original": "orders-3@42",
    "time": TIME,
    "address": "orders",
    "id": "id-1",
    "strategy": "ring",
    "source": {"topic": "orders", "partition": 3, "offset": 90, "time": TIME},
    "redrives": 0,
    "size_bytes": 23,
    "payload": None,
}
SEEN = {"topic": "orders", "partition": 3, "offset": 42, "time": TIME, "slots_to_eviction": 100}
KNOWN = {
    "address": "orders",
    "id": "id-1",
    "known": True,
    "sightings": [SEEN],
    "complete": True,
    "why": None,
}
NOTHING: dict[str, object] = {
    "position": "orders-3@90",
    "decision": "unknown",
    "sentence": "orders-3@90 is decided.",
    "dead_letter": None,
    "original_error": None,
    "content_differs": None,
    "id": None,
    "id_error": None,
    "accepted_since": None,
    "since": None,
    "redrives": [],
    "newer_dead_letter": None,
    "searched": 0,
    "next_page_token": None,
}
REFUSED = {**NOTHING, "decision": "refused", "dead_letter": LETTER, "id": KNOWN}


def explained(**fields: object) -> Reply:
    """The explanation of a dead letter, but for these members."""
    return Reply(200, {**REFUSED, **fields})


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (("orders.dlq-0@7",), {"at": ["orders.dlq-0@7"]}),
        (("orders-3@090",), {"at": ["orders-3@90"]}),
        (("a/b", "x&y"), {"address": ["a/b"], "id": ["x&y"]}),
        (("orders", ""), {"address": ["orders"], "id": [""]}),
    ],
)
def test_one_question_is_asked(
    shell: Shell, words: tuple[str, ...], query: dict[str, list[str]]
) -> None:
    with scripted(explained()) as script:
        assert shell("why", *words, "--url", script.url).code == 0
    (asked,) = script.asked
    assert parse_qs(urlsplit(asked.path).query, keep_blank_values=True) == query


def test_with_json_the_document_is_printed_whatever_it_says(shell: Shell) -> None:
    for document, code in ((REFUSED, 0), (NOTHING, 3), ({**NOTHING, "decision": "undecided"}, 3)):
        with scripted(Reply(200, document)) as script:
            ran = shell("why", "orders-3@90", "--json", "--url", script.url)
        assert (ran.code, json.loads(ran.out)) == (code, document)


@pytest.mark.parametrize("decision", ["unknown", "undecided"])
def test_a_position_without_an_answer_has_its_sentence_on_stderr(
    shell: Shell, decision: str
) -> None:
    with scripted(Reply(200, {**NOTHING, "decision": decision})) as script:
        ran = shell("why", "orders-3@90", "--url", script.url)
    assert (ran.code, ran.out, ran.err) == (3, "", "ringfence: orders-3@90 is decided.\n")


def test_an_id_that_is_not_known_is_shown_and_exits_with_3(shell: Shell) -> None:
    unknown = {**KNOWN, "known": False, "sightings": []}
    sentence = "orders does not know the id: a record with it is accepted."
    reply = Reply(200, {**NOTHING, "position": None, "sentence": sentence, "id": unknown})
    with scripted(reply) as script:
        ran = shell("why", "orders", "id-1", "--url", script.url)
    assert (ran.code, ran.err, "accepted record" in ran.out) == (3, f"{sentence}\n", False)


def test_a_search_continues_until_so_many_dead_letters_were_searched(shell: Shell) -> None:
    parts = [
        Reply(200, {**NOTHING, "searched": number, "next_page_token": f"after-{number}"})
        for number in (40, 80, 120)
    ]
    with scripted(*parts) as script:
        ran = shell("why", "orders-3@90", "--among", "100", "--url", script.url)
    tokens = [parse_qs(urlsplit(each.path).query).get("page_token") for each in script.asked]
    assert tokens == [None, ["after-40"], ["after-80"]]
    assert ran.err.endswith(" To search more: ringfence why orders-3@90 --among 1000\n")


def test_an_accepted_record_is_shown_with_what_is_remembered_of_it(shell: Shell) -> None:
    sentence = "orders-3@42 was accepted: it is the original of the id id-1 at orders."
    reply = Reply(200, {**NOTHING, "decision": "accepted", "sentence": sentence, "id": KNOWN})
    with scripted(reply) as script:
        ran = shell("why", "orders-3@42", "--url", script.url)
    assert (ran.code, ran.err) == (0, f"{sentence}\n")
    assert "accepted record\torders-3@42" in ran.out


def test_what_followed_leads_to_the_redrive(shell: Shell) -> None:
    since = "The redrive 7-x has accepted it since, with mode forget, so the output has it."
    reply = explained(accepted_since=True, since=since, redrives=[{"id": "7-x"}])
    with scripted(reply) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, typed="")
    assert ran.err == f"{since}\nTo see the redrive: ringfence redrive show 7-x\n"


def test_what_followed_leads_to_the_newer_dead_letter(shell: Shell) -> None:
    since = "A redrive refused it again, as orders.dlq-0@12."
    newer = {**LETTER, "offset": 12}
    reply = explained(since=since, redrives=[{"id": "7-x"}], newer_dead_letter=newer)
    with scripted(reply) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url, typed="")
    assert ran.err == f"{since}\nTo see why: ringfence why orders.dlq-0@12\n"


def test_a_search_for_a_newer_dead_letter_that_is_too_long_names_the_command_that_goes_on(
    shell: Shell,
) -> None:
    state = {"searched": 60, "next_page_token": "more"}
    reply = explained(since="…", redrives=[{"id": "7-x"}], **state)
    with scripted(reply, reply) as script:
        ran = shell("why", "orders.dlq-0@7", "--among", "50", "--url", script.url)
    assert "To search more: ringfence why orders-3@90 --among 500\n" in ran.err


def test_an_id_that_cannot_be_looked_up_does_not_hide_the_dead_letter(shell: Shell) -> None:
    with scripted(explained(id=None, id_error="Not restored.")) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url)
    assert (ran.code, "its id was accepted at orders-3@42 already" in ran.out) == (0, True)
    assert ran.err == "Its id cannot be looked up now: Not restored.\n"


def test_a_letter_without_an_id_says_who_has_to_do_what(shell: Shell) -> None:
    cause = "it has no _DUPL_ID, and the route requires one"
    letter = {**LETTER, "reason": "missing-id", "cause": cause, "id": None, "original": None}
    with scripted(explained(dead_letter=letter, id=None, accepted_since=False)) as script:
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


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"content_differs": True}, "content\tdiffers from that of the original"),
        ({"content_differs": False}, "content\tthe same as that of the original"),
        (
            {"original_error": "That needs the role payload:read."},
            "content\tnot compared. That needs the role payload:read.\n",
        ),
    ],
)
def test_a_duplicate_is_compared_with_its_original(
    shell: Shell, fields: dict[str, object], sentence: str
) -> None:
    with scripted(explained(**fields)) as script:
        ran = shell("why", "orders.dlq-0@7", "--url", script.url)
    assert sentence in ran.out


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        (explained(accepted_since=True), "a redrive has accepted it since; see"),
        (explained(redrives=[{"id": "7-x"}]), "a redrive has sent it since; see"),
        (explained(accepted_since=False), ""),
        (Reply(500, {"detail": "No."}), "Whether it was redriven cannot be looked up now"),
    ],
)
def test_a_redrive_of_a_letter_that_was_redriven_before_is_announced_as_such(
    shell: Shell, reply: Reply, note: str
) -> None:
    preview = {
        "matched": 1,
        "redrives": 1,
        "complete": True,
        "doubles": 1,
        "skipped": {},
        "samples": [LETTER],
        "by_reason": {"duplicate": 1},
        "by_address": {"orders": 1},
        "by_topic": {"orders.dlq": 1},
    }
    words = ("redrive", "start", "--mode", "forget", "orders.dlq-0@7", "--dry-run")
    with scripted(Reply(200, preview), reply) as script:
        ran = shell(*words, "--url", script.url)
    assert (ran.code, note in ran.err) == (0, True)
    assert ("since" in ran.err) == ("since" in note)
