"""Routes, address settings and their history from a shell: tried out, asked for, done."""

import json
from pathlib import Path

import pytest

from api.view import ServiceView
from tests.api.fake_service import FakeSettings
from tests.unit.service.commands.conftest import Shell

pytestmark = pytest.mark.usefixtures("url")


def revision(shell: Shell) -> int:
    """Of what is set now."""
    return int(json.loads(shell("settings", "export").out)["revision"])


@pytest.mark.parametrize("pause", [["pause"], ["route", "pause"]])
def test_a_route_is_paused_and_resumed(shell: Shell, pause: list[str]) -> None:
    ran = shell(*pause, "orders", "--reason", "INC-17")
    assert (ran.code, ["paused", "false", "→", "true"] in ran.rows) == (0, True)
    assert shell("route", "ls").rows[1][:2] == ["orders", "paused"]
    assert "INC-17" in shell("settings", "history").out
    assert shell(*pause[:-1], "resume", "orders").code == 0
    assert shell("route", "ls").rows[1][:2] == ["orders", "running"]


def test_what_is_so_already_writes_no_revision(shell: Shell) -> None:
    ran = shell("resume", "orders", "--json")
    assert (ran.code, json.loads(ran.out)["effect"]) == (0, [])
    assert revision(shell) == 0


def test_a_route_is_shown_with_all_its_keys(shell: Shell) -> None:
    assert ["output", "out"] in shell("route", "show", "orders").rows
    ran = shell("route", "show", "nope")
    assert ran.code == 3
    assert "There is no route nope" in ran.err


@pytest.mark.parametrize(
    "text", ['inputs = ["orders"]\noutput = "new"', '{"inputs": ["orders"], "output": "new"}']
)
def test_a_route_is_put_from_a_file_or_a_pipe(shell: Shell, user: Path, text: str) -> None:
    file = user / "orders.conf"
    file.write_text(text)
    tried = shell("route", "put", "orders", str(file), "--dry-run")
    assert (tried.code, ["output", "out", "→", "new"] in tried.rows) == (0, True)
    assert revision(shell) == 0
    assert shell("route", "put", "orders", piped=text).code == 0
    assert ["output", "new"] in shell("route", "show", "orders").rows


def test_a_route_is_made_and_deleted(shell: Shell) -> None:
    assert shell("route", "put", "more", piped='inputs = ["more"]').code == 0
    assert shell("route", "delete", "more").code == 2
    assert shell("route", "delete", "more", typed="n\n").code == 1
    assert shell("route", "delete", "more", "--yes").code == 0
    assert shell("route", "show", "more").code == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[", "neither JSON nor TOML"),
        ('{"inputs"', "neither JSON nor TOML"),
        ('name = "other"', "another route"),
        ('inputs = ["orders"]\noutptu = "x"', "output"),
    ],
)
def test_what_no_route_is_is_told(shell: Shell, text: str, told: str) -> None:
    ran = shell("route", "put", "orders", piped=text)
    assert (ran.code, told in ran.err) == (2, True)
    assert revision(shell) == 0


def test_a_resize_that_forgets_nothing_asks_nothing(shell: Shell) -> None:
    ran = shell("address", "resize", "orders", "700")
    assert (ran.code, ["id_cache_size", "", "→", "700"] in ran.rows) == (0, True)
    assert ["orders", "id_cache_size=700", "rest"] in shell("address", "settings", "ls").rows


def test_a_resize_shows_what_is_forgotten_by_age_and_asks(shell: Shell) -> None:
    tried = shell("address", "resize", "orders", "1", "--dry-run")
    row = next(row for row in tried.rows if row[0] == "orders")
    assert row[3:5] == ["3", "2"]
    assert row[5:] == ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]
    refused = shell("address", "resize", "orders", "1")
    assert (refused.code, "2 ids would be forgotten" in refused.err) == (2, True)
    assert shell("address", "resize", "orders", "1", typed="\n").code == 1
    assert revision(shell) == 0
    assert shell("address", "resize", "orders", "1", typed="y\n").code == 0
    assert revision(shell) > 0


def test_one_id_is_told_of_as_one_and_none_as_none(shell: Shell) -> None:
    one = shell("address", "resize", "orders", "2", "--dry-run", typed="")
    assert "1 id is forgotten" in one.out
    none = shell("address", "resize", "orders", "5", "--dry-run", typed="")
    assert "No id is forgotten" in none.out


def test_another_strategy_is_forced_only_by_who_wants_it(shell: Shell) -> None:
    words = ("address", "set", "orders", "strategy=window", "window_ms=60000")
    assert shell(*words).code == 2
    assert revision(shell) == 0
    assert shell(*words, "--yes").code == 0
    shown = shell("address", "settings", "show", "orders").rows
    assert ["strategy", "window"] in shown
    assert ["window_ms", "60000"] in shown


def test_keys_are_set_beside_those_that_are_there_and_left_to_others(shell: Shell) -> None:
    assert shell("address", "set", "#", "persist_id_cache=false").code == 0
    shown = shell("address", "settings", "show", "#").rows
    assert ["id_cache_size", "20000"] in shown
    assert ["persist_id_cache", "false"] in shown
    shell("address", "set", "#", "process_expired=true", "--unset", "persist_id_cache")
    names = [row[0] for row in shell("address", "settings", "show", "#").rows]
    assert "process_expired" in names
    assert "persist_id_cache" not in names


def test_an_address_that_looks_like_a_pattern_is_resized_alone(shell: Shell) -> None:
    assert shell("address", "resize", "a.*", "7").code == 0
    patterns = [row[0] for row in shell("address", "settings", "ls").rows]
    assert "(a.*)" in patterns
    assert "a.*" not in patterns


def test_settings_of_a_pattern_are_deleted_by_who_wants_it(shell: Shell) -> None:
    shell("address", "resize", "orders", "700")
    assert shell("address", "settings", "delete", "orders").code == 2
    assert shell("address", "settings", "delete", "orders", "--yes").code == 0
    assert shell("address", "settings", "show", "orders").code == 3


@pytest.mark.parametrize("pair", ["id_cache_size", "=7"])
def test_what_is_no_setting_is_a_usage_error(shell: Shell, pair: str) -> None:
    ran = shell("address", "set", "orders", pair)
    assert (ran.code, "KEY=VALUE" in ran.err) == (2, True)


def test_what_breaks_a_rule_is_told_by_its_name(shell: Shell) -> None:
    ran = shell("address", "set", "orders", "id_cache_size=-1")
    assert (ran.code, "id_cache_size" in ran.err) == (2, True)


def test_all_that_is_set_is_exported_and_put_back(shell: Shell, user: Path) -> None:
    file = user / "settings.json"
    shell("address", "resize", "orders", "700")
    assert shell("settings", "export", "--out", str(file)).code == 0
    shell("pause", "orders")
    changed = shell("settings", "diff", str(file))
    assert (changed.code, ["changes", "resumed: orders"] in changed.rows) == (1, True)
    assert shell("settings", "apply", str(file)).code == 2
    applied = shell("settings", "apply", str(file), "--yes")
    assert applied.code == 0
    assert "what came since is taken back too" in applied.err
    assert shell("settings", "diff", str(file)).code == 0
    assert shell("route", "ls").rows[1][1] == "running"


def test_a_revision_is_shown_and_gone_back_to(shell: Shell) -> None:
    shell("pause", "orders")
    first = revision(shell)
    shell("resume", "orders", "--reason", "done")
    told = shell("settings", "history").rows
    assert [row[0] for row in told[1:]] == [str(revision(shell)), str(first)]
    assert told[1][3:] == ["done", "resumed: orders"]
    assert ["changes", "paused: orders"] in shell("settings", "show", str(first)).rows
    assert shell("settings", "diff", str(first)).code == 1
    assert shell("settings", "rollback", str(first)).code == 2
    assert shell("settings", "rollback", str(first), "--dry-run").code == 0
    assert shell("settings", "rollback", str(first), typed="y\n").code == 0
    assert shell("route", "ls").rows[1][1] == "paused"
    assert shell("settings", "rollback", "999", "--yes").code == 3


def test_what_is_not_applied_in_time_is_told_with_its_revision(
    shell: Shell, view: ServiceView
) -> None:
    assert isinstance(view.settings, FakeSettings)
    view.settings.is_applied = False
    ran = shell("pause", "orders")
    assert ran.code == 1
    assert "is written" in ran.err


def test_json_is_what_the_api_told(shell: Shell) -> None:
    assert json.loads(shell("route", "ls", "--json").out)["routes"][0]["name"] == "orders"
    outcome = json.loads(shell("pause", "orders", "--json").out)
    assert (outcome["applied"], outcome["effect"]) == (True, ["paused: orders"])
