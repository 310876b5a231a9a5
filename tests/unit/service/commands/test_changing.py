"""What changes something: counted, asked, refused where nobody can be asked, and done."""

from pathlib import Path

import pytest

from tests.unit.service.commands.conftest import Shell

pytestmark = pytest.mark.usefixtures("url")
RISKS = {
    "address clear orders": "3 ids",
    "id forget orders id-1": "Forget it?",
    "publisher set P --address orders --sequence 9": "would stand at 9",
    "publisher session end P": "End the session of P?",
}


@pytest.mark.parametrize("words", RISKS)
def test_where_nobody_can_be_asked_nothing_is_changed(shell: Shell, words: str) -> None:
    ran = shell(*words.split())
    assert ran.code == 2
    assert RISKS[words] in ran.err
    assert "--yes" in ran.err


@pytest.mark.parametrize("words", RISKS)
@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_who_does_not_want_it_changes_nothing(shell: Shell, words: str, answer: str) -> None:
    ran = shell(*words.split(), typed=answer)
    assert ran.code == 1
    assert RISKS[words] in ran.err
    assert "Nothing was changed." in ran.err


@pytest.mark.parametrize("words", RISKS)
def test_who_wants_it_is_told_what_was_done(shell: Shell, words: str) -> None:
    asked = shell(*words.split(), typed="y\n")
    scripted = shell(*words.split(), "--yes", "--reason", "because")
    assert (asked.code, scripted.code) == (0, 0)
    assert "--yes" not in scripted.err


@pytest.mark.parametrize("words", RISKS)
def test_a_dry_run_asks_nothing_and_changes_nothing(shell: Shell, words: str) -> None:
    ran = shell(*words.split(), "--dry-run", typed="")
    assert ran.code == 0
    assert "[y/N]" not in ran.err


def test_what_is_forgotten_is_counted(shell: Shell) -> None:
    assert shell("address", "clear", "orders", "--yes").rows == [["forgotten", "3"]]
    assert shell("id", "forget", "orders", "id-1", "--yes").rows == [["forgotten", "1"]]


@pytest.mark.parametrize("name", ["", "hex:ff00"])
def test_any_id_is_forgotten(shell: Shell, name: str) -> None:
    assert shell("id", "forget", "orders", name, "--yes").rows == [["forgotten", "1"]]


def test_an_id_that_is_not_known_cannot_be_forgotten(shell: Shell) -> None:
    tried = shell("id", "forget", "orders", "id-1", "--dry-run")
    assert (tried.code, "Without --dry-run" in tried.err) == (0, True)
    ran = shell("id", "forget", "orders", "nope", "--yes")
    assert ran.code == 3
    assert "does not know" in ran.err


def test_a_session_is_opened_and_another_user_is_refused_with_4(shell: Shell) -> None:
    opened = shell("publisher", "session", "open", "P", "--user", "a")
    assert ["epoch", "1"] in opened.rows
    refused = shell("publisher", "session", "open", "P", "--user", "b")
    assert refused.code == 4
    assert "another user" in refused.err
    assert shell("publisher", "session", "end", "P", "--user", "a", "--yes").code == 0


def test_what_cannot_be_is_the_answer_no(shell: Shell) -> None:
    ran = shell("publisher", "set", "P", "--address", "other", "--sequence", "9", "--yes")
    assert ran.code == 1
    assert "strategy ring" in ran.err


LINES = (
    '{"id":"id-1","topic":"orders","partition":3}\n{"id":"new","topic":"orders","partition":3}\n'
)


def test_an_import_is_counted_asked_for_and_done(shell: Shell, user: Path) -> None:
    file = user / "ids.ndjson"
    file.write_text(LINES)
    words = ("id", "import", "orders", str(file))
    tried = shell(*words, "--dry-run")
    assert (tried.code, tried.rows) == (0, [["ids", "2"], ["new", "1"]])
    refused = shell(*words)
    assert refused.code == 2
    assert "Import 2 ids into orders, new: 1?" in refused.err
    assert shell(*words, "--yes", "--reason", "moved").rows == [["ids", "2"], ["new", "1"]]
    assert shell(*words, typed="y\n").code == 0


def test_an_import_tells_which_line_cannot_be_read(shell: Shell, user: Path) -> None:
    file = user / "ids.ndjson"
    file.write_text(LINES + "nonsense\n")
    ran = shell("id", "import", "orders", str(file), "--yes")
    assert ran.code == 1
    assert "Line 3" in ran.err
    assert shell("id", "import", "orders", str(user / "none"), "--yes").code == 2
