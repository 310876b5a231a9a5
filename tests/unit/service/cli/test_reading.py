"""What a transcript cannot hold: documents of the API, colours, zones, and what fails later."""

import json
import time
from types import SimpleNamespace

import httpx2
import pytest

from ringfence_api.app import WITHOUT_STATE, create_app
from ringfence_api.ports import ServiceView
from ringfence_api.server import serve_in_thread
from ringfence_service.queries.dead_letters import DeadLetterPosition
from tests.api.fake_letters import LETTER, FakeLetters
from tests.api.fake_service import FakeSettings
from tests.support.waiting import LIMIT_S
from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.scripted import Reply, scripted

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
    "route ls": "/v1/routes",
    "dead-letter ls": "/v1/dead-letters?newest=true",
    "dead-letter summary": "/v1/dead-letters:summary",
    "redrive ls": "/v1/redrives",
    "audit": "/v1/audit",
}


def test_json_is_the_document_of_the_api(shell: Shell, url: str) -> None:
    shell("address", "clear", "orders", "--yes")
    for words, path in READS.items():
        ran = shell(*words.split(), "--json")
        document = httpx2.get(f"{url}{path}", timeout=LIMIT_S).json()
        moment = {"as_of": json.loads(ran.out).get("as_of")} if "as_of" in document else {}
        assert json.loads(ran.out) == document | moment, words
        assert (ran.code, ran.err) == (0, ""), words


def test_a_terminal_shows_colours_unless_no_color_is_set(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[3" not in shell("status", typed="").out
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[32m" in shell("status", typed="").out


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


def test_more_ids_than_one_request_takes_are_looked_up(shell: Shell) -> None:
    ran = shell("id", "lookup", "orders", "-", "--json", piped="id-1\n" * 1_500)
    document = json.loads(ran.out)
    assert (document["known"], len(document["ids"])) == (1_500, 1_500)


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


def test_an_unreachable_instance_is_reported_with_the_reason(shell: Shell) -> None:
    whole = {"instances": [INSTANCE], "complete": True}
    part = {"instances": [INSTANCE, LOST], "complete": False}
    with scripted(Reply(200, whole), Reply(200, part)) as script:
        well = shell("instance", "ls", "--url", script.url)
        ill = shell("instance", "ls", "--url", script.url)
    assert (well.code, well.rows[1][:4]) == (0, ["0 (this one)", "running", "2", "0"])
    assert (ill.code, ill.rows[2][:4]) == (1, ["1", "lost", "", ""])
    assert "Instance 1 is not reachable: It does not answer." in ill.err


def test_a_change_that_is_not_applied_in_time_is_reported_with_its_revision(
    shell: Shell, view: ServiceView
) -> None:
    assert isinstance(view.settings, FakeSettings)
    view.settings.is_applied = False
    ran = shell("pause", "orders")
    assert ran.code == 1
    assert "is written" in ran.err


def test_tail_tells_each_that_comes_once_and_waits_for_a_service_that_is_away(
    shell: Shell, view: ServiceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = round(time.time() * 1000) + 60_000
    first = LETTER._replace(time_ms=now_ms)
    second = first._replace(position=DeadLetterPosition("orders.dlq", 1, 0))
    assert isinstance(view.letters, FakeLetters)
    letters = view.letters
    steps = iter(
        [
            lambda: letters.come(first),
            letters.go_away,
            lambda: letters.come(second),
            lambda: None,
            _interrupt,
        ]
    )
    clock = SimpleNamespace(sleep=lambda _s: next(steps)())
    monkeypatch.setattr("ringfence_service.cli.dead_letters.time", clock)
    waited_s: list[float] = []  # between requests that are sent again
    patience = SimpleNamespace(monotonic=lambda: sum(waited_s), sleep=waited_s.append)
    monkeypatch.setattr("ringfence_service.cli.http.time", patience)
    ran = shell("dead-letter", "tail", "--json", "--timeout", str(LIMIT_S))
    assert [json.loads(line)["partition"] for line in ran.out.splitlines()] == [0, 1]
    assert ran.err.count("Waiting …") == 1


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_tail_does_not_wait_for_what_has_never_answered(shell: Shell, view: ServiceView) -> None:
    assert isinstance(view.letters, FakeLetters)
    view.letters.go_away()
    assert shell("dead-letter", "tail", "--timeout", "0.1").code == 6


def test_the_status_of_a_bridge_is_shown_which_has_no_processes(
    shell: Shell, view: ServiceView, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve_in_thread(create_app(view, WITHOUT_STATE), "127.0.0.1", 0)
    monkeypatch.setenv("RINGFENCE_URL", server.url)
    ran = shell("status")
    assert (ran.code, ran.err) == (0, "")
    assert ["phase", "running"] in ran.rows
    assert json.loads(shell("status", "--json").out)["workers"] == []
    server.stop()


def test_status_tells_which_fast_paths_run_and_why_not_the_one_that_is_wanted(
    shell: Shell, url: str
) -> None:
    paths = ("/v1/status", "/v1/partitions", "/v1/workers")
    documents = [httpx2.get(f"{url}{path}", timeout=LIMIT_S).json() for path in paths]
    for crew, expected in (
        (
            [("native", None), ("python", "not built"), ("python", "not built")],
            "native, python; not built",
        ),
        ([("native", None), (None, None)], "native"),
    ):
        template = documents[2]["workers"][0]
        documents[2]["workers"] = [
            {**template, "fast_path": path, "fast_path_fault": fault} for path, fault in crew
        ]
        with scripted(*(Reply(body=document) for document in documents)) as script:
            assert ["fast path", expected] in shell("status", "--url", script.url).rows


def test_status_says_which_codecs_the_workers_need(shell: Shell, url: str) -> None:
    paths = ("/v1/status", "/v1/partitions", "/v1/workers")
    documents = [httpx2.get(f"{url}{path}", timeout=LIMIT_S).json() for path in paths]
    (template,) = documents[2]["workers"][:1]
    for crew, expected in ((("zstd", None, "gzip"), "gzip, zstd"), ((None,), None)):
        documents[2]["workers"] = [{**template, "compression": codec} for codec in crew]
        with scripted(*(Reply(body=document) for document in documents)) as script:
            rows = dict(row for row in shell("status", "--url", script.url).rows if len(row) == 2)
        assert rows.get("compresses") == (expected and f"{expected}: some records fit only so")


def test_partitions_show_their_warm_copies_where_there_are_any(shell: Shell, url: str) -> None:
    document = httpx2.get(f"{url}/v1/partitions", timeout=LIMIT_S).json()
    assert "1 of 1" in shell("partition", "ls").out
    for each in document["partitions"]:
        each["standbys"] = []
    with scripted(Reply(body=document)) as script:
        shown = shell("partition", "ls", "--url", script.url).out
    assert "warm copies" not in shown


@pytest.mark.parametrize("end", [None, 0])
def test_status_leaves_out_internal_partitions_without_records_and_counts_them(
    shell: Shell, url: str, end: int | None
) -> None:
    paths = ("/v1/status", "/v1/partitions", "/v1/workers")
    documents = [httpx2.get(f"{url}{path}", timeout=LIMIT_S).json() for path in paths]
    owned = documents[1]["partitions"]
    internal = f"{documents[0]['group_id']}.by-address"
    for topic in (internal, "new-input"):
        owned.append({**owned[0], "topic": topic, "end_offset": end, "lag_records": end})
    with scripted(*(Reply(body=document) for document in documents)) as script:
        shown = shell("status", "--url", script.url, typed="").out
    assert f"4 partitions, 1 of {internal} without records, and more that" in shown
    assert shown.count(internal) == 1
    assert "new-input" in shown


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        (["orders.dlq-0@7"], "mode bypass, 1 by position: orders.dlq-0@7"),
        ([f"orders.dlq-0@{each}" for each in range(4)], "orders.dlq-0@1, orders.dlq-0@2, …"),
        ([], "mode bypass, all"),
    ],
)
def test_the_audit_shows_the_mode_and_the_first_letters_of_a_redrive(
    shell: Shell, named: list[str], shown: str
) -> None:
    words = ("redrive", "start", "--mode", "bypass", *named, "--yes")
    assert shell(*words).code == 0
    changes = [row[-1] for row in shell("audit").rows if row[2] == "POST /v1/redrives"]
    assert (shown in changes[0], "null" in changes[0]) == (True, False), changes
