"""What is given to a command or stands in a configuration: never a traceback, whatever it is."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ringfence_main.cli import app
from ringfence_service.config.load import load_lenient
from ringfence_service.errors import AdminExit, ExitCode, ExitError

pytestmark = pytest.mark.security

NOWHERE: Final = "http://127.0.0.1:1"
CODES: Final = {*map(int, ExitCode), *map(int, AdminExit)}
COMMANDS: Final = (
    ("status",),
    ("why",),
    ("route", "show"),
    ("address", "show"),
    ("address", "clear", "--yes"),
    ("address-settings", "set"),
    ("id", "get"),
    ("publisher", "show"),
    ("dead-letter", "ls"),
    ("dead-letter", "show"),
    ("redrive", "start", "--yes"),
    ("audit",),
    ("check", "--config"),
    ("plan",),
)
OPTIONS: Final = ("--json", "--limit", "--reason", "--url", "--since", "--mode", "--", "-h", "--x")
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
words = st.lists(text | st.sampled_from(OPTIONS) | st.sampled_from(["../..", "-1", "a=b"]))

scalars = text | st.integers() | st.booleans() | st.sampled_from(["", "^(a+)+$", "#", "{key}"])
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(text, scalars, max_size=2)
KEYS: Final = (
    "inputs", "name", "scope", "address", "output", "auth", "host", "port", "tokens_file",
    "state_dir", "workers", "bootstrap.servers", "strategy", "id_cache_size", "window_ms",
)  # fmt: skip
tables = st.dictionaries(st.sampled_from(KEYS) | text, values, max_size=4)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(command=st.sampled_from(COMMANDS), more=words)
def test_whatever_a_command_is_given_it_ends_with_a_code_of_the_contract(
    command: Sequence[str], more: list[str]
) -> None:
    asked = [*command, *(word.replace("\0", "") for word in more)]
    environ = {"RINGFENCE_URL": NOWHERE, "RINGFENCE_TOKEN": "", "HOME": "/nonexistent"}
    done = CliRunner().invoke(app, asked, env=environ, prog_name="ringfence")
    if isinstance(done.exception, ExitError):  # `main` tells it
        assert done.exception.exit_code in CODES
        assert done.exception.sentence
    else:
        assert isinstance(done.exception, SystemExit | None), (asked, done.exception)
        assert done.exit_code in CODES, asked


def lines(name: str, table: dict[str, object], opening: str, closing: str) -> str:
    """A table of TOML."""
    told = [f"{json.dumps(key)} = {_toml(value)}" for key, value in table.items()]
    return "\n".join([f"{opening}{name}{closing}", *told, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON writes a character beyond 16 bits as two halves, which TOML does not know.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "")


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(parts=st.tuples(*[tables] * 5), pattern=text)
def test_whatever_a_configuration_holds_its_faults_are_reported(
    tmp_path: Path, parts: tuple[dict[str, object], ...], pattern: str
) -> None:
    names = ("kafka", "service", "api", f"addresses.{json.dumps(pattern, ensure_ascii=False)}")
    file = tmp_path / "ringfence.toml"
    told = [lines(n, t, "[", "]") for n, t in zip(names, parts, strict=False)]
    file.write_text("\n".join([*told, lines("routes", parts[4], "[[", "]]")]), encoding="utf-8")
    _, problems = load_lenient(file, {})
    assert all(each.what and each.fix for each in problems)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=200))
def test_whatever_a_file_is_it_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_bytes(content)
    _, problems = load_lenient(file, {"RINGFENCE_SERVICE__GROUP_ID": content.decode("latin-1")})
    assert problems  # no route stands in it
