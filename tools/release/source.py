"""Source of a release: a commit whose files all state the version of the release."""

import io
import re
import subprocess
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tools.release.changelog import Section, section
from tools.release.errors import RefusedError
from tools.unpack import unpack

_STATED: Final = (
    ("pyproject.toml", r'^version = "(.+)"$'),
    ("pyproject.toml", r'"ringfence==([^"]+)"'),
    ("pyproject.toml", r'"ringfence-native==([^;"]+);'),
    ("ringfence/pyproject.toml", r'^version = "(.+)"$'),
    ("native/pyproject.toml", r'^version = "(.+)"$'),
    ("deploy/helm/ringfence/Chart.yaml", r"^version: (\S+)$"),
    ("deploy/helm/ringfence/Chart.yaml", r'^appVersion: "(\S+)"$'),
    ("Dockerfile", r"^ARG VERSION=(\S+)$"),
    ("clients/java/pom.xml", r"^  <version>(\S+)</version>$"),
)
"""The files that state the version, each with the expression that finds it."""


class Source(NamedTuple):
    """A clean checkout at the commit that is released."""

    root: Path
    version: str
    section: Section
    commit: str
    committed_s: int
    """When it was committed, in seconds since the epoch: the time of every file of the release."""

    @property
    def committed(self) -> str:
        """The time of the commit in the format of RFC 3339."""
        return datetime.fromtimestamp(self.committed_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def export(self, folder: Path) -> None:
        """Write the files of the commit to a folder, each with the time of the commit."""
        archive = _git(self.root, "archive", "--format=tar", self.commit)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            unpack(files, folder)


def source(root: Path, version: str) -> Source:
    """Return the checkout as the source of a version; raise RefusedError if it cannot be one."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise RefusedError(f"{version!r} is not a version: give one like VERSION=1.2.3.")
    changed = _git(root, "status", "--porcelain").decode().splitlines()
    if changed:
        listed = "\n".join(changed[:10])
        raise RefusedError(f"These files are not committed: commit or remove them.\n{listed}")
    found = section((root / "CHANGELOG.md").read_text("utf-8"), version)
    if others := stated_otherwise(root, version):
        listed = "\n".join(others)
        raise RefusedError(f"These files state another version than {version}:\n{listed}")
    commit, committed_s = _git(root, "log", "-1", "--format=%H %ct").decode().split()
    return Source(root, version, found, commit, int(committed_s))


def stated_otherwise(root: Path, version: str) -> list[str]:
    """Return a line for each place that states another version or none."""
    lines = []
    for name, pattern in _STATED:
        stated = re.findall(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        if stated != [version]:
            lines.append(f"{name}: {', '.join(stated) or 'none'} ({pattern})")
    return lines


def _git(root: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    if done.returncode:
        error = done.stderr.decode(errors="replace").strip()
        raise RefusedError(f"`git {' '.join(arguments)}` failed: {error}")
    return done.stdout
