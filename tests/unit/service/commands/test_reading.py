"""What the commands show of a service: on a terminal, in a pipe, and as JSON."""

import json
import time
from pathlib import Path

import httpx2
import pytest

from service.status import Status
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING
from tests.unit.service.commands.conftest import Shell
from tests.unit.service.commands.scripted import Reply, scripted

pytestmark = pytest.mark.usefixtures("url")
READS = {
    "partition ls": "/v1/partitions",
    "worker ls": "/v1/workers",
    "address ls": "/v1/addresses",
    "address ls --sort -ids_held --prefix o": "/v1/addresses?sort=-ids_held&prefix=o",
    "address show orders": "/v1/addresses/orders",
    "id get orders id-1": "/v1/ids?address=orders&name=id-1",
    "id ls orders": "/v1/addresses/orders/ids",
    "publisher ls": "/v1/publishers",
    "publisher show P": "/v1/publishers/P",
}


@pytest.mark.parametrize("words", READS)
def test_json_is_the_document_of_the_api(shell: Shell, url: str, words: str) -> None:
    ran = shell(*words.split(), "--json")
    assert json.loads(ran.out) == httpx2.get(f"{url}{READS[words]}").json()
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("words", READS)
def test_in_a_pipe_every_line_of_a_table_has_as_many_values(shell: Shell, words: str) -> None:
    ran = shell(*words.split())
    assert ran.code == 0
    for paragraph in ran.out.split("\n\n"):
        assert len({line.count("\t") for line in paragraph.splitlines()}) == 1
    assert "\x1b" not in ran.out


def test_a_terminal_shows_colours_unless_no_color_is_set(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[3" not in shell("status", typed="").out
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[32m" in shell("status", typed="").out


@pytest.mark.parametrize("words", READS)
def test_on_a_terminal_columns_are_aligned(shell: Shell, words: str) -> None:
    ran = shell(*words.split(), typed="")
    assert ran.code == 0
    assert "\t" not in ran.out
    assert ran.out.strip()


def test_status_shows_counts_partitions_and_processes(shell: Shell) -> None:
    ran = shell("status", typed="")
    assert ran.code == 0
    for words in (
        "running",
        "ringfence, instance 0",
        "█",
        "orders",
        "records to go",
        "64.0 MiB",
    ):
        assert words in ran.out
    document = json.loads(shell("status", "--json").out)
    assert set(document) == {"status", "partitions", "workers"}


class TestWhileItRestores:
    @pytest.fixture
    def status(self) -> Status:
        return RUNNING._replace(
            partitions=(RESTORING_PARTITION,), phase="waiting", waiting_for="A topic is missing."
        )

    def test_status_tells_how_far_and_what_it_waits_for(self, shell: Shell) -> None:
        ran = shell("status", typed="")
        assert ran.code == 0
        assert "15 %" in ran.out
        assert "A topic is missing." in ran.out

    def test_what_it_cannot_answer_yet_is_waited_for_and_then_told(self, shell: Shell) -> None:
        ran = shell("id", "get", "orders", "id-1", "--timeout", "0.5")
        assert (ran.code, ran.out) == (6, "")
        assert "Not restored" in ran.err
        assert "--timeout" in ran.err


class TestBeforeItRuns:
    @pytest.fixture
    def status(self) -> Status:
        return STARTING

    def test_status_ends_with_1(self, shell: Shell) -> None:
        assert shell("status").code == 1


def test_an_id_is_answered_with_its_original(shell: Shell) -> None:
    for words in (("id", "get", "orders", "id-1"), ("why", "orders", "id-1")):
        ran = shell(*words)
        assert ran.code == 0
        assert ["accepted record", "orders-3@42"] in ran.rows
        assert ["accepted", "2023-11-14T22:13:20Z"] in ran.rows
        assert ["forgotten after", "19999"] in ran.rows
    assert "is a duplicate of orders-3@42." in shell("id", "get", "orders", "id-1", typed="").out


def test_an_id_that_is_not_known_ends_with_3(shell: Shell) -> None:
    for words in (("id", "get", "orders", "nope"), ("why", "orders", "nope")):
        ran = shell(*words)
        assert (ran.code, ran.err) == (3, "")
        assert ["known", "no"] in ran.rows


@pytest.mark.parametrize(
    ("address", "identifier"),
    [
        ("orders", ""),
        ("orders", "hex:ff00"),
        ("orders", "base64:_wA"),
        ("a/b c+d%é", "x/y?z#%2F"),
        ("..", "hex:1b5b33316d"),
    ],
)
def test_addresses_and_ids_hold_any_character(shell: Shell, address: str, identifier: str) -> None:
    ran = shell("id", "get", address, identifier)
    assert ran.code == 0
    assert ["known", "yes"] in ran.rows
    assert shell("address", "show", address).code == 0
    assert shell("id", "ls", address).code == 0


def test_what_a_publisher_wrote_moves_no_cursor(shell: Shell) -> None:
    for words in (("id", "get", "..", "hex:1b5b33316d"), ("id", "ls", "..")):
        assert "\x1b[31m" not in shell(*words, typed="").out


def test_a_list_stops_at_its_limit(shell: Shell) -> None:
    assert len(shell("id", "ls", "orders", "--limit", "2").rows) == 1 + 2


def test_an_id_that_cannot_be_read_is_a_usage_error_with_its_place(shell: Shell) -> None:
    ran = shell("id", "get", "orders", "hex:xyz")
    assert ran.code == 2
    assert "/query/name: after hex: stand pairs of hexadecimal digits" in ran.err


def test_a_publisher_that_is_not_known_ends_with_3(shell: Shell) -> None:
    ran = shell("publisher", "show", "nobody")
    assert ran.code == 3
    assert "nobody" in ran.err


def test_times_are_local_on_a_terminal_and_utc_when_asked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert "2023-11-15 03:43:20+05:30" in shell("id", "ls", "orders", typed="").out
        assert "2023-11-14 22:13:20Z" in shell("id", "ls", "orders", "--utc", typed="").out
    finally:
        monkeypatch.undo()
        time.tzset()


def test_addresses_are_listed_as_they_are_sorted(shell: Shell) -> None:
    assert [row[0] for row in shell("address", "ls").rows[1:]] == ["..", "a/b c+d%é", "orders"]
    first = shell("address", "ls", "--sort", "-ids_held", "--limit", "1")
    assert [row[0] for row in first.rows[1:]] == ["orders"]
    assert "There are more" in first.err


def test_a_plan_without_a_rate_to_go_by_says_how_to_give_one(shell: Shell) -> None:
    ran = shell("address", "plan", "nowhere", "--retry-window", "2h")
    assert (ran.code, "--rate" in ran.err) == (1, True)


def test_a_plan_tells_the_size_and_the_command_that_sets_it(shell: Shell) -> None:
    ran = shell("address", "plan", "orders", "--retry-window", "2h", "--rate", "500")
    assert ran.code == 1
    assert ["retry window", "7200000"] in ran.rows
    needed = next(row[1] for row in ran.rows if row[0] == "recommended")
    assert f"ringfence address set orders id_cache_size={needed}" in ran.err
    small = shell("address", "plan", "orders", "--retry-window", "30s", "--rate", "0.1")
    assert (small.code, small.err) == (0, "")


def test_many_ids_are_looked_up_and_one_that_is_not_known_ends_with_3(shell: Shell) -> None:
    ran = shell("id", "lookup", "orders", "id-1", "nope")
    assert ran.code == 3
    assert [row[:3] for row in ran.rows[1:]] == [["id-1", "yes", "orders-3@42"], ["nope", "no", ""]]
    piped = shell("id", "lookup", "orders", "-", piped="id-1\n\nhex:ff00\n")
    assert (piped.code, [row[1] for row in piped.rows[1:]]) == (0, ["yes", "yes"])
    nothing = shell("id", "lookup", "orders", "-", "--json", piped="\n")
    assert (nothing.code, json.loads(nothing.out)) == (0, {"ids": [], "known": 0})


def test_more_ids_than_one_request_takes_are_looked_up(shell: Shell) -> None:
    ran = shell("id", "lookup", "orders", "-", "--json", piped="id-1\n" * 1_500)
    document = json.loads(ran.out)
    assert (document["known"], len(document["ids"])) == (1_500, 1_500)


def test_ids_are_exported_as_lines_to_a_pipe_and_to_a_file(shell: Shell, user: Path) -> None:
    piped = shell("id", "export", "orders")
    assert [json.loads(line)["id"] for line in piped.out.splitlines()] == ["hex:ff00", "", "id-1"]
    file = user / "orders.ndjson"
    ran = shell("id", "export", "orders", "--out", str(file))
    assert (ran.code, ran.out, file.read_text()) == (0, "", piped.out)
    assert [each.name for each in user.glob("orders*")] == ["orders.ndjson"]
    assert shell("id", "export", "orders", "--out", "/nowhere/x").code == 2


INSTANCE = {
    "instance": "0",
    "url": "http://a",
    "own": True,
    "reachable": True,
    "trouble": None,
    "version": "0.1.0",
    "started_at": "2026-01-02T03:04:05Z",
    "phase": "running",
    "waiting_for": None,
    "revision": 7,
    "partitions_owned": 2,
    "partitions_restoring": 0,
    "lag_records": 5,
}
LOST = INSTANCE | {
    "instance": "1",
    "own": False,
    "reachable": False,
    "trouble": "It does not answer.",
    "phase": None,
    "partitions_owned": None,
    "partitions_restoring": None,
    "lag_records": None,
}


def test_an_instance_that_is_not_reachable_is_told_with_its_trouble(shell: Shell) -> None:
    whole = {"instances": [INSTANCE], "complete": True}
    part = {"instances": [INSTANCE, LOST], "complete": False}
    with scripted(Reply(200, whole), Reply(200, part)) as script:
        well = shell("instance", "ls", "--url", script.url)
        ill = shell("instance", "ls", "--url", script.url)
    assert (well.code, well.rows[1][:4]) == (0, ["0 (asked)", "running", "2", "0"])
    assert (ill.code, ill.rows[2][:4]) == (1, ["1", "lost", "", ""])
    assert "Instance 1 is not reachable: It does not answer." in ill.err
