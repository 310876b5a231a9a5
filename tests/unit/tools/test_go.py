"""What Go builds and fetches is verified and made once per pin; a failure is reported."""

import json
from pathlib import Path

import pytest

from tools import go
from tools.go import GoBuildError, GoFiles, GoMissingError, GoProgram

FILES = GoFiles("example.org/files", "v1.0.0", "h1:right", ("a.yaml", "b.yaml"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for what is built, and a `go` that prints what the test has it print."""
    monkeypatch.setattr(go, "TOOLS_DIR", tmp_path / "tools")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return tmp_path


def answers(tools: Path, found: dict[str, str], script: str = "") -> None:
    program = tools / "go"
    program.write_text(f"#!/bin/sh\n{script}\ncat <<'END'\n{json.dumps(found)}\nEND\n")
    program.chmod(0o755)


def test_files_of_a_module_are_read_when_their_digest_is_the_pinned_one(tools: Path) -> None:
    (tools / "a.yaml").write_text("a")
    (tools / "b.yaml").write_text("b")
    answers(tools, {"Dir": str(tools), "Sum": "h1:right"})
    assert FILES.texts() == ["a", "b"]


def test_another_digest_is_refused_with_both(tools: Path) -> None:
    answers(tools, {"Dir": str(tools), "Sum": "h1:wrong"})
    with pytest.raises(GoBuildError, match="has the digest h1:wrong, and h1:right was pinned"):
        FILES.folder()


def test_what_the_proxy_does_not_have_is_reported(tools: Path) -> None:
    answers(tools, {"Error": "no such version"})
    with pytest.raises(GoBuildError, match=r"example.org/files@v1.0.0` failed: no such version"):
        FILES.folder()


def test_another_source_is_another_program_and_the_same_one_is_built_once(tools: Path) -> None:
    folder = tools / "module"
    folder.mkdir()
    (folder / "go.mod").write_text("module a")
    (folder / "go.sum").write_text("")
    answers(tools, {}, 'echo built >> "$PWD/built"; while [ "$1" != -o ]; do shift; done; : > "$2"')
    program = GoProgram("program", folder, ".")
    first = program.binary()
    assert program.binary() == first
    (folder / "main.go").write_text("package main")
    assert program.binary() != first
    assert (folder / "built").read_text().split() == ["built", "built"]


def test_without_go_the_error_says_what_to_install(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(GoMissingError, match=r"example.org/files is built by Go .* install Go"):
        FILES.folder()
