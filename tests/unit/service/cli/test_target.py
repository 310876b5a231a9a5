"""Which API a command asks, and which token it sends."""

from pathlib import Path

import pytest

from ringfence_service.cli.target import ApiTarget, TargetOptions, where
from ringfence_service.errors import ExitError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a URL and a token."""
    (tmp_path / "my.token").write_text("of-mine\n")
    return {"RINGFENCE_URL": "http://env/", "RINGFENCE_TOKEN": "of-env"}


def test_without_anything_it_is_this_machine() -> None:
    assert where(TargetOptions(), {}) == ApiTarget("http://127.0.0.1:8080")


def test_the_environment_names_the_api_and_the_token(environ: dict[str, str]) -> None:
    assert where(TargetOptions(), environ) == ApiTarget("http://env", "of-env")


def test_options_override_the_environment(environ: dict[str, str], tmp_path: Path) -> None:
    options = TargetOptions(url="http://opt")
    assert where(options, environ) == ApiTarget("http://opt", "of-env")
    options = options._replace(token_file=tmp_path / "my.token")
    assert where(options, environ) == ApiTarget("http://opt", "of-mine")


def test_a_token_is_read_from_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    given = {"RINGFENCE_TOKEN_FILE": str(tmp_path / "my.token")}
    assert where(TargetOptions(), given).token == "of-mine"  # noqa: S105 - it is none
    with pytest.raises(ExitError, match="cannot be read"):
        where(TargetOptions(token_file=tmp_path / "none"), environ)
