"""Why: a place where no record can be is answered without looking through dead letters."""

from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.scripted import Reply, scripted

OWNED = {"topic": "orders", "partition": 3, "end_offset": 100}


@pytest.mark.parametrize(
    ("place", "complete", "sentence"),
    [
        ("nosuch-0@1", True, "no route reads the topic nosuch now"),
        ("orders-9@1", True, "the input orders has no partition 9"),
        ("orders-3@100", True, "orders-3 ends at offset 100"),
        ("orders-3@99", True, "it was accepted, or it is not decided yet"),
        ("nosuch-0@1", False, "it was accepted, or it is not decided yet"),
    ],
)
def test_a_record_that_cannot_exist_is_not_said_to_be_accepted(
    shell: Shell, place: str, *, complete: bool, sentence: str
) -> None:
    absent = Reply(404, {"type": "no-dead-letter", "title": "", "status": 404, "detail": ""})
    partitions = Reply(200, {"partitions": [OWNED], "complete": complete})
    letters = Reply(200, {"dead_letters": [], "scanned": 0, "next_page_token": None})
    with scripted(absent, partitions, letters) as script:
        ran = shell("why", place, "--url", script.url)
    assert (ran.code, sentence in ran.err) == (3, True), ran.err
    assert len(script.asked) == (3 if "accepted" in sentence else 2)


def test_the_letter_of_a_record_is_asked_for_by_its_position_until_so_many_were_searched(
    shell: Shell,
) -> None:
    absent = Reply(404, {"type": "no-dead-letter", "title": "", "status": 404, "detail": ""})
    partitions = Reply(200, {"partitions": [OWNED], "complete": True})
    letters = Reply(200, {"dead_letters": [], "scanned": 40, "next_page_token": "more"})
    with scripted(absent, partitions, letters) as script:
        ran = shell("why", "orders-3@99", "--among", "100", "--url", script.url)
    assert (ran.code, "the 100 newest dead letters have none" in ran.err) == (3, True)
    searches = [parse_qs(urlsplit(each.path).query) for each in script.asked[2:]]
    assert [each.get("page_token") for each in searches] == [None, ["more"], ["more"]]
    assert {(*each["source"], *each["page_size"]) for each in searches} == {("orders-3@99", "1")}
