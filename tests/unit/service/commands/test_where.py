"""Where a command goes, and which token it shows there."""

from pathlib import Path

import pytest

from service.commands.where import Asked, Where, where
from service.errors import ExitError
from tests.unit.service.commands.conftest import Shell

HERE = "http://127.0.0.1:8080"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with the context `prod` in use, and a token."""
    folder = tmp_path / "ringfence"
    folder.mkdir()
    (tmp_path / "prod.token").write_text("of-prod\n")
    (tmp_path / "my.token").write_text("of-mine\n")
    (folder / "contexts.toml").write_text(
        f'current = "prod"\n[contexts.prod]\nurl = "https://prod/"\n'
        f'token_file = "{tmp_path}/prod.token"\n[contexts.test]\nurl = "https://test"\n'
    )
    return {"XDG_CONFIG_HOME": str(tmp_path), "RINGFENCE_TOKEN": "of-env"}


def test_without_anything_it_is_this_machine() -> None:
    assert where(Asked(), {"HOME": "/nowhere"}) == Where(HERE)


def test_the_context_in_use_counts_with_its_own_token(environ: dict[str, str]) -> None:
    assert where(Asked(), environ) == Where("https://prod", "of-prod")


def test_the_environment_wins_over_the_context_in_use(environ: dict[str, str]) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(Asked(), given) == Where("http://env", "of-env")


def test_a_named_context_wins_over_the_environment_and_gets_no_token_of_it(
    environ: dict[str, str],
) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(Asked(context="test"), given) == Where("https://test")
    assert where(Asked(), environ | {"RINGFENCE_CONTEXT": "test"}) == Where("https://test")


def test_an_option_wins_over_everything_and_gets_no_token_of_the_context(
    environ: dict[str, str], tmp_path: Path
) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(Asked(url="http://opt"), given) == Where("http://opt", "of-env")
    asked = Asked(url="http://opt", token_file=tmp_path / "my.token")
    assert where(asked, given) == Where("http://opt", "of-mine")


def test_a_token_is_read_from_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    given = {"RINGFENCE_TOKEN_FILE": str(tmp_path / "my.token"), "HOME": "/nowhere"}
    assert where(Asked(), given).token == "of-mine"  # noqa: S105 - it is none
    with pytest.raises(ExitError, match="cannot be read"):
        where(Asked(token_file=tmp_path / "none"), environ)


def test_an_unknown_context_is_told_with_those_that_are_known(environ: dict[str, str]) -> None:
    with pytest.raises(ExitError, match="prod, test"):
        where(Asked(context="tset"), environ)


def test_contexts_are_added_used_listed_and_removed(shell: Shell, user: Path) -> None:
    assert shell("context", "add", "prod", "--url", "https://prod").code == 0
    added = shell("context", "add", "test", "--url", 'https://te"st', "--token-file", "/t")
    assert added.code == 0
    assert str(user / "config" / "ringfence" / "contexts.toml") in added.err
    assert shell("context", "ls").rows[1:] == [
        ["*", "prod", "https://prod", "", ""],
        ["", "test", 'https://te"st', "/t", ""],
    ]
    assert shell("context", "use", "test").code == 0
    assert shell("context", "rm", "prod").code == 0
    assert shell("context", "ls").rows[1:] == [["*", "test", 'https://te"st', "/t", ""]]
    assert shell("context", "use", "prod").code == 2
    assert shell("context", "add", "a b", "--url", "u").code == 2


def test_a_file_of_contexts_that_is_broken_is_told_by_its_name(shell: Shell, user: Path) -> None:
    file = user / "config" / "ringfence" / "contexts.toml"
    file.parent.mkdir(parents=True)
    for broken in ("[", "contexts = 1", "[contexts.a]\nurl = 'u'\nmore = 1"):
        file.write_text(broken)
        ran = shell("status")
        assert (ran.code, str(file) in ran.err) == (2, True)
