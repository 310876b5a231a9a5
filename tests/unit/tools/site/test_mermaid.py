"""The script for diagrams is used only with the pinned content."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.site import mermaid
from tools.site.mermaid import MEMBER, MermaidMissingError, mermaid_script

SCRIPT = b"var mermaid = {};"


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that packs what the test puts beside it."""
    program = tmp_path / "npm"
    program.write_text(f'#!/bin/sh\nexec cp {tmp_path}/package.tgz "$4/mermaid.tgz"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(mermaid, "SHA256", hashlib.sha256(SCRIPT).hexdigest())
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as package:
        member = tarfile.TarInfo(MEMBER)
        member.size = len(SCRIPT)
        package.addfile(member, io.BytesIO(SCRIPT))
    return program


def test_the_script_is_fetched_once(npm: Path, tmp_path: Path) -> None:
    script = mermaid_script(tmp_path / "run")
    assert script.read_bytes() == SCRIPT
    npm.unlink()
    assert mermaid_script(tmp_path / "run") == script


@pytest.mark.usefixtures("npm")
def test_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mermaid, "SHA256", "0" * 64)
    with pytest.raises(ToolError, match="delete it, then try again"):
        mermaid_script(tmp_path / "run")


def test_an_npm_that_fails_is_as_good_as_none(npm: Path, tmp_path: Path) -> None:
    npm.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(MermaidMissingError, match="npm did not fetch mermaid"):
        mermaid_script(tmp_path / "run")


def test_a_machine_without_npm_has_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MermaidMissingError, match="npm is not installed"):
        mermaid_script(tmp_path / "run")
