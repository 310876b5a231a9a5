"""A release is refused unless the commit is whole and states the version that is asked for."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import CHECKOUT, COMMITTED_S, checkout_of, git
from tools.image.contents import Package
from tools.release.__main__ import main
from tools.release.artifacts import locked_packages, write_checksums
from tools.release.changelog import Section, section
from tools.release.source import source, stated_otherwise

CHANGELOG: Final = """\
# Changelog

## 1.3.0 (not released)

## 1.2.3 (2026-11-26)
- One thing.
- `## 9.9.9` is no heading.

## 1.2.2
- An older thing.
"""
FILES: Final = {
    "CHANGELOG.md": CHANGELOG,
    ".gitignore": "/dist/\n/.run/\n",
    "pyproject.toml": (
        'version = "1.2.3"\n'
        'dependencies = ["ringfence==1.2.3", "ringfence-native==1.2.3; x", "typer"]\n'
    ),
    "ringfence/pyproject.toml": 'version = "1.2.3"\n',
    "native/pyproject.toml": 'version = "1.2.3"\n',
    "deploy/helm/ringfence/Chart.yaml": 'version: 1.2.3\nappVersion: "1.2.3"\n',
    "Dockerfile": "FROM base\nARG VERSION=1.2.3\n",
    "clients/java/pom.xml": "<project>\n  <version>1.2.3</version>\n</project>\n",
}
STATED: Final = [
    ("pyproject.toml", 'version = "1.2.3"'),
    ("pyproject.toml", "ringfence==1.2.3"),
    ("pyproject.toml", "ringfence-native==1.2.3"),
    ("ringfence/pyproject.toml", "1.2.3"),
    ("native/pyproject.toml", "1.2.3"),
    ("deploy/helm/ringfence/Chart.yaml", "version: 1.2.3"),
    ("deploy/helm/ringfence/Chart.yaml", 'appVersion: "1.2.3"'),
    ("Dockerfile", "1.2.3"),
    ("clients/java/pom.xml", "1.2.3"),
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return checkout_of(FILES, tmp_path)


def refused(root: Path, version: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return why a version is refused; nothing may have been made for it."""
    before = {path for path in root.rglob("*") if ".git" not in path.parts}
    assert main([version], root) == 2
    assert {path for path in root.rglob("*") if ".git" not in path.parts} == before
    return capsys.readouterr().err


def test_a_commit_that_states_the_version_everywhere_is_the_source_of_it(checkout: Path) -> None:
    found = source(checkout, "1.2.3")
    assert found.commit == git(checkout, "rev-parse", "HEAD").strip()
    assert (found.committed_s, found.committed) == (COMMITTED_S, "2023-11-14T22:13:20Z")
    assert found.section.is_dated


def test_the_release_notes_are_the_section_of_the_version() -> None:
    found = section(CHANGELOG, "1.2.3")
    assert found.notes == "# Ringfence 1.2.3\n\n- One thing.\n- `## 9.9.9` is no heading.\n"
    assert section(CHANGELOG, "1.2.2") == Section("1.2.2", "", "- An older thing.")
    assert not section(CHANGELOG, "1.2.2").is_dated


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3\n"])
def test_what_is_no_version_is_refused(
    checkout: Path, version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "is not a version" in refused(checkout, version, capsys)


def test_a_version_without_a_section_is_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "CHANGELOG.md has no section 9.9.9" in refused(checkout, "9.9.9", capsys)
    assert "The section 1.3.0 of CHANGELOG.md is empty" in refused(checkout, "1.3.0", capsys)


@pytest.mark.parametrize("name", ["CHANGELOG.md", "service/new.py"])
def test_a_change_or_a_file_that_is_not_committed_is_refused(
    checkout: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / name).parent.mkdir(exist_ok=True)
    with (checkout / name).open("a") as file:
        file.write("more\n")
    assert "not committed" in refused(checkout, "1.2.3", capsys)


def test_a_folder_that_is_no_repository_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "`git status --porcelain` failed" in refused(tmp_path, "1.2.3", capsys)


@pytest.mark.parametrize(("name", "words"), STATED)
def test_a_file_that_states_another_version_is_named(
    checkout: Path, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = FILES[name].replace(words, words.replace("1.2.3", "1.2.2"))
    (checkout / name).write_text(text, "utf-8")
    git(checkout, "commit", "--all", "--quiet", "--message", "Another version")
    error = refused(checkout, "1.2.3", capsys)
    assert f"\n{name}: 1.2.2 (" in error
    assert error.count("\n") == 2


def test_a_file_that_states_no_version_any_more_is_named(checkout: Path) -> None:
    (checkout / "Dockerfile").write_text("FROM base\n", "utf-8")
    (line,) = stated_otherwise(checkout, "1.2.3")
    assert line.startswith("Dockerfile: none")


def test_every_file_of_this_checkout_states_the_same_version() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    assert stated_otherwise(CHECKOUT, project["version"]) == []
    assert section((CHECKOUT / "CHANGELOG.md").read_text("utf-8"), project["version"]).body


def test_pages_and_files_name_the_image_the_chart_and_the_packages_of_this_version() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    named = (
        r"ringfence(?:[_-]server|-spark)?(?:==|[:-])(\d+\.\d+\.\d+)"
        r"|--version (\d\S+)|VERSION=(\d\S*\d)"
    )
    pages = [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md"), *CHECKOUT.glob("deploy/**/*.md")]
    found = {
        (page.name, version)
        for page in (*pages, CHECKOUT / "Dockerfile")
        for versions in re.findall(named, page.read_text("utf-8"))
        for version in filter(None, versions)
    }
    assert len(found) > 5
    assert {version for _, version in found} == {project["version"]}, found


def test_an_export_has_the_files_of_the_commit_and_its_time(checkout: Path) -> None:
    found = source(checkout, "1.2.3")
    (checkout / "Dockerfile").write_text("changed later", "utf-8")
    exported = checkout / ".run" / "exported"
    found.export(exported)
    files = [path for path in exported.rglob("*") if path.is_file()]
    assert {str(path.relative_to(exported)): path.read_text("utf-8") for path in files} == FILES
    assert {path.stat().st_mtime for path in files} == {COMMITTED_S}


def test_a_lock_file_is_read_as_its_packages(tmp_path: Path) -> None:
    lock = tmp_path / "service.txt"
    lock.write_text(
        "PyYAML==6.0.3 \\\n    --hash=sha256:0a\ncffi==2.1.1 ; platform_system != 'Windows' \\\n"
        "    --hash=sha256:0b\n",
        "utf-8",
    )
    assert locked_packages(lock) == [
        Package("pypi", "pyyaml", "6.0.3"),
        Package("pypi", "cffi", "2.1.1"),
    ]


def test_the_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    for name in ("b.whl", "a.tgz"):
        (tmp_path / name).write_bytes(name.encode())
    write_checksums(tmp_path)
    check = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(check, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "a.tgz: OK\nb.whl: OK\n"
