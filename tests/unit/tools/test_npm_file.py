"""A file of an npm package is used only with the pinned content."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.npm_file import NpmFile, NpmFileMissingError

SCRIPT = b"var drawn = {};"
FILE = NpmFile(
    "drawing", "1.2.3", "package/dist/drawing.min.js", hashlib.sha256(SCRIPT).hexdigest()
)


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that packs what the test puts beside it."""
    program = tmp_path / "npm"
    program.write_text(f'#!/bin/sh\nexec cp {tmp_path}/package.tgz "$4/drawing.tgz"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with tarfile.open(tmp_path / "package.tgz", "w:gz") as package:
        member = tarfile.TarInfo(FILE.member)
        member.size = len(SCRIPT)
        package.addfile(member, io.BytesIO(SCRIPT))
    return program


def test_the_file_is_fetched_once(npm: Path, tmp_path: Path) -> None:
    script = FILE.path(tmp_path / "run")
    assert (script.name, script.read_bytes()) == ("drawing-1.2.3.min.js", SCRIPT)
    npm.unlink()
    assert FILE.path(tmp_path / "run") == script


@pytest.mark.usefixtures("npm")
def test_another_content_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="delete it, then try again"):
        FILE._replace(sha256="0" * 64).path(tmp_path / "run")


def test_an_npm_that_fails_is_as_good_as_none(npm: Path, tmp_path: Path) -> None:
    npm.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(NpmFileMissingError, match=r"npm did not fetch drawing 1\.2\.3"):
        FILE.path(tmp_path / "run")


def test_a_machine_without_npm_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NpmFileMissingError, match="npm is not installed"):
        FILE.path(tmp_path / "run")
