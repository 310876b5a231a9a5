"""The audit from a shell: who changed what, when and why."""

import json

import pytest

from tests.unit.service.commands.conftest import Shell

pytestmark = pytest.mark.usefixtures("url")


def test_a_change_is_told_with_its_reason(shell: Shell) -> None:
    shell("address", "clear", "orders", "--yes", "--reason", "a test")
    newest = shell("audit").rows[1]
    assert newest[1:5] == ["anonymous", "POST /v1/addresses:clear", "200", "a test"]
    assert json.loads(shell("audit", "--json").out)["records"][0]["reason"] == "a test"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--actor", "anonymous"], True),
        (["--actor", "nobody"], False),
        (["--resource", "/v1/addresses"], True),
        (["--resource", "/v1/publishers"], False),
        (["--from", "1h"], True),
        (["--to", "2020-01-01"], False),
    ],
)
def test_it_is_filtered(shell: Shell, words: list[str], found: bool) -> None:  # noqa: FBT001
    shell("address", "clear", "orders", "--yes")
    ran = shell("audit", *words)
    assert (ran.code, len(ran.rows) > 1) == (0, found)


def test_what_is_only_read_is_not_recorded(shell: Shell) -> None:
    shell("address", "ls")
    ran = shell("audit")
    assert (ran.code, len(ran.rows)) == (0, 1)
    assert "Nothing was changed." in ran.err
