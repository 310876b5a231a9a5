"""Jars fetched with Maven from a pom in this repository and verified by committed checksums.

A folder of jars is used only if it holds exactly the listed files with the listed contents. It is
fetched once, into a temporary folder that is renamed when everything is verified. A file lock makes
sure that one process fetches while the others wait.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tools.errors import ToolError

JAVA_VERSION_MIN: Final = 17
RUN_FOLDER: Final = Path(__file__).parents[1] / ".run"

_FETCH_TIMEOUT_S: Final = 900.0
_LOCK_POLL_S: Final = 0.2


def java_command() -> str:
    """Return the path of a Java that can run the broker."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        searched = f"JAVA_HOME ({home})" if home else "the PATH"
        message = (
            f"No java in {searched}: install Java {JAVA_VERSION_MIN} or newer (a JRE is enough)."
        )
        raise ToolError(message)
    done = subprocess.run(
        [java, "-version"], check=False, capture_output=True, text=True, timeout=60
    )
    found = re.search(r'version "(\d+)', done.stderr)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        version = done.stderr.strip().partition("\n")[0]
        message = f"{java} is too old ({version}): install Java {JAVA_VERSION_MIN} or newer."
        raise ToolError(message)
    return java


class Jars(NamedTuple):
    """A set of jars: its purpose, pom, checksums, and the folder that holds it."""

    purpose: str
    pom: Path
    checksums: Path
    folder: Path
    options: tuple[str, ...] = ()
    """Maven options in addition to the pom."""

    @property
    def archive(self) -> Path:
        """Return the path of the class-data archive of these jars, which Java maps at the start."""
        return self.folder.with_name(f"{self.folder.name}.jsa")

    @property
    def formatted(self) -> Path:
        """Return the path of a formatted data folder without data, which new brokers begin with."""
        return self.folder.with_name(f"{self.folder.name}.formatted")

    def fetched(self) -> Path:
        """Return the folder with the verified jars, fetching them first if it is missing."""
        folder = self.folder
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with exclusive(folder.with_name(f"{folder.name}.lock"), _FETCH_TIMEOUT_S):
                if not folder.exists():
                    self._fetch()
        self._verify(folder)
        return folder

    def _fetch(self) -> None:
        fetching = self.folder.with_name(f"{self.folder.name}.fetching")
        shutil.rmtree(fetching, ignore_errors=True)
        _run_maven(self, fetching)
        self._verify(fetching)
        fetching.rename(self.folder)

    def _verify(self, folder: Path) -> None:
        expected = _read_checksums(self.checksums)
        found = {path.name: path for path in folder.glob("*.jar")}
        wrong = sorted(expected.keys() ^ found.keys()) or [
            name for name, checksum in expected.items() if _sha256(found[name]) != checksum
        ]
        if wrong:
            message = (
                f"{', '.join(wrong)} in {folder} is not what {self.checksums.name} lists:"
                " delete that folder, and the jar from Maven's repository (~/.m2), then try again."
            )
            raise ToolError(message)


@contextmanager
def exclusive(lock_path: Path, timeout_s: float) -> Iterator[None]:
    """Hold a file lock while the block runs; raise ToolError after waiting for the timeout."""
    deadline = time.monotonic() + timeout_s
    with lock_path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = (
                        f"Another process has held {lock_path} for {timeout_s:.0f} s:"
                        " wait for it or end it, then try again."
                    )
                    raise ToolError(message) from None
                time.sleep(_LOCK_POLL_S)
            else:
                break
        yield


def _read_checksums(path: Path) -> dict[str, str]:
    lines = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {name: checksum for checksum, name in lines}


def _run_maven(jars: Jars, output_folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        message = (
            f"No mvn on the PATH: install Maven; the jars of {jars.purpose} are fetched with it"
            " once."
        )
        raise ToolError(message)
    command = [
        *(maven, "--batch-mode", "--quiet", "-Dstyle.color=never", "--file", str(jars.pom)),
        *jars.options,
        *("dependency:copy-dependencies", f"-DoutputDirectory={output_folder.resolve()}"),
    ]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        message = (
            f"Maven did not fetch the jars of {jars.purpose} within {_FETCH_TIMEOUT_S:.0f} s:"
            " try again."
        )
        raise ToolError(message) from None
    if done.returncode != 0:
        errors = "\n".join(done.stdout.strip().splitlines()[:8])
        message = (
            f"Maven could not fetch the jars of {jars.purpose} (status {done.returncode}); check"
            f" its connection and settings.xml. Its output:\n{errors}"
        )
        raise ToolError(message)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
