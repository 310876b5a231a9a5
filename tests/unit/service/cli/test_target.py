"""Where a command goes, and which token it shows there."""

from pathlib import Path

import pytest

from service.cli.target import ApiTarget, TargetOptions, where
from service.errors import ExitError

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
    assert where(TargetOptions(), {"HOME": "/nowhere"}) == ApiTarget(HERE)


def test_the_context_in_use_counts_with_its_own_token(environ: dict[str, str]) -> None:
    assert where(TargetOptions(), environ) == ApiTarget("https://prod", "of-prod")


def test_the_environment_wins_over_the_context_in_use(environ: dict[str, str]) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(TargetOptions(), given) == ApiTarget("http://env", "of-env")


def test_a_named_context_wins_over_the_environment_and_gets_no_token_of_it(
    environ: dict[str, str],
) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(TargetOptions(context="test"), given) == ApiTarget("https://test")
    assert where(TargetOptions(), environ | {"RINGFENCE_CONTEXT": "test"}) == ApiTarget(
        "https://test"
    )


def test_an_option_wins_over_everything_and_gets_no_token_of_the_context(
    environ: dict[str, str], tmp_path: Path
) -> None:
    given = environ | {"RINGFENCE_URL": "http://env"}
    assert where(TargetOptions(url="http://opt"), given) == ApiTarget("http://opt", "of-env")
    asked = TargetOptions(url="http://opt", token_file=tmp_path / "my.token")
    assert where(asked, given) == ApiTarget("http://opt", "of-mine")


def test_a_token_is_read_from_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    given = {"RINGFENCE_TOKEN_FILE": str(tmp_path / "my.token"), "HOME": "/nowhere"}
    assert where(TargetOptions(), given).token == "of-mine"  # noqa: S105 - it is none
    with pytest.raises(ExitError, match="cannot be read"):
        where(TargetOptions(token_file=tmp_path / "none"), environ)


def test_an_unknown_context_is_told_with_those_that_are_known(environ: dict[str, str]) -> None:
    with pytest.raises(ExitError, match="prod, test"):
        where(TargetOptions(context="tset"), environ)
