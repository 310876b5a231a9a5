"""Apicurio: a real schema registry with the API of Confluent's, as a process.

Its archive comes from Maven, pinned by its checksum, and is kept unpacked in `.run`.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from tests.fakes.schema_registry import Reference
from tests.support.waiting import eventually
from tools.broker.config import free_port
from tools.broker.embedded import LAUNCH
from tools.jars import RUN_FOLDER, exclusive, java_command
from tools.unpack import unpack

HERE: Final = Path(__file__).parent
_FETCH_S: Final = 600.0
_JAVA: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx192m")
_JSON: Final = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


class Apicurio:
    """A registry whose schemas survive it; a context manager that leaves no process behind."""

    def __init__(self, folder: Path) -> None:
        """`folder` has its database and its log."""
        if absent := [each for each in ("java", "mvn") if shutil.which(each) is None]:
            pytest.skip(f"Apicurio needs {', '.join(absent)}, not installed here")
        self._folder = folder
        self._port = free_port(0)
        self._process: subprocess.Popen[bytes] | None = None
        self._versions: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        home = _unpacked()
        (jar,) = home.glob("*-runner.jar")
        database = f"jdbc:h2:file:{self._folder / 'schemas'};WRITE_DELAY=0"
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        options = [
            f"-Dquarkus.http.port={self._port}",
            "-Dquarkus.http.host=127.0.0.1",
        ]
        with (self._folder / "apicurio.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, java_command(), *_JAVA, *options, "-jar", str(jar)],
                env={**os.environ, "REGISTRY_DATASOURCE_URL": database},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually(self._answers, self)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def register(
        self, subject: str, kind: str, text: str, references: Sequence[Reference] = ()
    ) -> int:
        """Return the id of a schema; references are to the newest versions."""
        named = [
            {"name": name, "subject": of, "version": self._versions[of]} for name, of in references
        ]
        body = {"schemaType": kind, "schema": text, "references": named}
        found: int = self._asked(f"/subjects/{subject}/versions", body)["id"]
        self._versions[subject] = self._versions.get(subject, 0) + 1
        return found

    def tail(self) -> str:
        """The end of its log."""
        return (self._folder / "apicurio.log").read_text(errors="replace")[-2000:]

    def _answers(self) -> bool:
        try:
            return bool(self._asked("/schemas/types"))
        except urllib.error.HTTPError:
            return False
        except OSError:
            return False

    def _asked(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, _JSON)  # noqa: S310 - our own
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own
            return json.load(answer)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _unpacked() -> Path:
    """Return the folder of the registry, fetched and unpacked first if it is missing."""
    wanted, name = (HERE / "archive.sha256").read_text("ascii").split()
    home = RUN_FOLDER / f"apicurio-{wanted[:12]}"
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(home.with_name(f"{home.name}.lock"), _FETCH_S):
            if not home.exists():
                fetching = home.with_name(f"{home.name}.fetching")
                shutil.rmtree(fetching, ignore_errors=True)
                _fetch(fetching, name, wanted)
                fetching.rename(home)
    return home


def _fetch(folder: Path, name: str, wanted: str) -> None:
    words = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "dependency:copy"]
    done = subprocess.run(
        [*words, f"-DoutputDirectory={folder}"],
        capture_output=True,
        text=True,
        timeout=_FETCH_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    archive = folder / name
    with archive.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == wanted, f"{name} is another one"
    with tarfile.open(archive) as packed:
        unpack(packed, folder)
    archive.unlink()
