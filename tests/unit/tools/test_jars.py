import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools.broker.artifacts import KAFKA_VERSION, kafka, versions
from tools.errors import ToolError
from tools.jars import Jars, java_command

CONTENT = b"a jar\n"


def jars_in(folder: Path, checksums: Path) -> Jars:
    return Jars("a test", checksums.with_name("pom.xml"), checksums, folder)


@pytest.fixture
def checksums(tmp_path: Path) -> Path:
    path = tmp_path / "jars.sha256"
    path.write_text(f"{hashlib.sha256(CONTENT).hexdigest()}  a.jar\n", encoding="ascii")
    return path


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in Maven's place that writes one jar slowly, and a line for each call."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\nfor last; do :; done\nfolder=${{last#*=}}\n'
        f'mkdir -p "$folder"\nsleep 0.2\necho "a jar" > "$folder/a.jar"\n',
        encoding="ascii",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return calls


def test_two_that_start_at_once_fetch_once(tmp_path: Path, checksums: Path, maven: Path) -> None:
    folder = tmp_path / "run" / "jars"
    with ThreadPoolExecutor(2) as both:
        found = list(both.map(lambda _: jars_in(folder, checksums).fetched(), range(2)))
    assert found == [folder, folder]
    assert len(maven.read_text(encoding="ascii").splitlines()) == 1


def test_a_jar_that_is_not_the_pinned_one_is_never_used(tmp_path: Path, checksums: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a.jar").write_bytes(b"another jar\n")
    with pytest.raises(ToolError, match=r"a\.jar in .* is not what jars\.sha256 lists"):
        jars_in(folder, checksums).fetched()


def test_a_jar_that_nobody_listed_is_never_used(tmp_path: Path, checksums: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a.jar").write_bytes(CONTENT)
    (folder / "b.jar").write_bytes(CONTENT)
    with pytest.raises(ToolError, match=r"^b\.jar in "):
        jars_in(folder, checksums).fetched()


@pytest.mark.usefixtures("maven")
def test_what_maven_fetched_is_verified_before_it_takes_its_place(
    tmp_path: Path, checksums: Path
) -> None:
    checksums.write_text(f"{'0' * 64}  a.jar\n", encoding="ascii")
    with pytest.raises(ToolError, match=r"a\.jar"):
        jars_in(tmp_path / "jars", checksums).fetched()
    assert not (tmp_path / "jars").exists()


def test_a_missing_maven_or_java_is_reported(
    tmp_path: Path, checksums: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ToolError, match="No mvn on the PATH: install Maven"):
        jars_in(tmp_path / "jars", checksums).fetched()
    with pytest.raises(ToolError, match="No java in the PATH: install Java 17"):
        java_command()


def test_a_java_that_is_too_old_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n", encoding="ascii")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ToolError, match=r'too old \(openjdk version "11\.0\.2"\)'):
        java_command()


@pytest.mark.parametrize("version", versions())
def test_every_jar_of_a_version_that_is_supported_has_one_checksum(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_VERSION", version)
    lines = [line.split() for line in kafka().checksums.read_text(encoding="ascii").splitlines()]
    names = [name for _, name in lines]
    assert f"kafka_2.13-{version}.jar" in names
    assert len(set(names)) == len(names)
    assert all(len(checksum) == 64 for checksum, _ in lines)


def test_the_usual_version_is_the_one_of_which_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RINGFENCE_KAFKA_VERSION", raising=False)
    assert kafka().folder.name == f"kafka-{KAFKA_VERSION}"
    assert KAFKA_VERSION in versions()


def test_a_version_without_checksums_is_refused_with_those_that_have_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RINGFENCE_KAFKA_VERSION", "9.9.9")
    with pytest.raises(ToolError, match=rf"'9\.9\.9', for which .*{KAFKA_VERSION}"):
        kafka()
