"""Kafka clients: runs a program of each, on artifacts that are pinned here and kept in `.run`.

A program gets its broker and topic from the environment, as those in docs/wire-contract.md do.
What a client needs is fetched once for each pin and verified: jars and Go modules as `tools` does
it, Python and npm packages by the hashes in their lock files.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tools.go import GoProgram
from tools.jars import RUN_FOLDER, Jars, exclusive, java_command

HERE: Final = Path(__file__).parent
JARS: Final = Jars(
    purpose="the Java clients",
    pom=HERE / "pom.xml",
    checksums=HERE / "jars.sha256",
    folder=RUN_FOLDER / "clients" / "jars",
)
# A program of a few records ends before code that is compiled well would pay.
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_AIOKAFKA: Final = HERE.parents[2] / "requirements" / "clients.txt"
_NPM: Final = (HERE / "package.json", HERE / "package-lock.json")
_PROJECT: Final = HERE.parents[2] / "clients" / "java"
_SOURCES: Final = [
    _PROJECT / "pom.xml",
    *sorted(each for each in (_PROJECT / "src").rglob("*") if each.is_file()),
]
_FETCH_S: Final = 600.0
_RUN_S: Final = 120.0


class Command(NamedTuple):
    """What runs a program."""

    words: Sequence[str]
    environment: Mapping[str, str] = {}


class Client(NamedTuple):
    """A client library or tool, and how a program for it is run."""

    name: str
    needs: tuple[str, ...]
    """Programs that have to be on the PATH."""
    command: Callable[[str, Path], Command]
    """Of the text of a program, and an empty folder for it."""

    def skip_if_missing(self) -> None:
        """Skip the test on a machine without the programs that the client needs."""
        if absent := [each for each in self.needs if shutil.which(each) is None]:
            pytest.skip(f"{self.name} needs {', '.join(absent)}, not installed here")

    def run(self, text: str, folder: Path, **environment: str) -> str:
        """Run a program with these variables, and return what it prints; it has to succeed."""
        command = self.command(text, folder)
        done = subprocess.run(
            command.words,
            cwd=folder,
            env={**os.environ, **command.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_RUN_S,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout


def _confluent(text: str, folder: Path) -> Command:
    return Command([sys.executable, _written(folder, "send.py", text)])


def _aiokafka(text: str, folder: Path) -> Command:
    python = "{}.{}".format(*sys.version_info)
    packages = _kept(f"aiokafka-py{python}", [_AIOKAFKA], _install_aiokafka)
    words = [sys.executable, _written(folder, "send.py", text)]
    return Command(words, {"PYTHONPATH": str(packages)})


def _java(text: str, folder: Path) -> Command:
    jars = f"{JARS.fetched()}/*"
    return Command([java_command(), *QUICK, "-cp", jars, _written(folder, "Send.java", text)])


def _ringfence(text: str, folder: Path) -> Command:
    jar = _kept("ringfence", _SOURCES, _package_ringfence) / "target" / "*"
    classes = os.pathsep.join([str(jar), f"{JARS.fetched()}/*"])
    return Command([java_command(), *QUICK, "-cp", classes, _written(folder, "Send.java", text)])


def _go(text: str, folder: Path) -> Command:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / name, folder)
    _written(folder, "main.go", text)
    return Command([str(GoProgram("client", folder, ".").binary())])


def _node(text: str, folder: Path) -> Command:
    modules = _kept("npm", _NPM, _install_npm) / "node_modules"
    words = ["node", _written(folder, "send.js", text)]
    return Command(words, {"NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"})


def _shell(text: str, _: Path) -> Command:
    return Command(["sh", "-euc", text])


CONFLUENT: Final = Client("confluent-kafka", (), _confluent)
AIOKAFKA: Final = Client("aiokafka", (), _aiokafka)
JAVA: Final = Client("kafka-clients", ("java", "javac", "mvn"), _java)
SPRING: Final = Client("KafkaTemplate", JAVA.needs, _java)
RINGFENCE: Final = Client("clients/java", JAVA.needs, _ringfence)
"""The Java client with our classes for it, in the jar that Maven makes of them."""
FRANZ_GO: Final = Client("franz-go", ("go",), _go)
KAFKA_GO: Final = Client("segmentio/kafka-go", ("go",), _go)
KAFKAJS: Final = Client("kafkajs", ("node", "npm"), _node)
PLATFORMATIC: Final = Client("@platformatic/kafka", KAFKAJS.needs, _node)
KCAT: Final = Client("kcat", ("kcat",), _shell)


def _written(folder: Path, name: str, text: str) -> str:
    """Write a file of a program; return its path."""
    (folder / name).write_text(text, "utf-8")
    return str(folder / name)


def _kept(name: str, pins: Sequence[Path], install: Callable[[Path], None]) -> Path:
    """Return the folder of what the pins describe, made first by `install` if it is missing."""
    digest = hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()[:12]
    kept = RUN_FOLDER / "clients" / f"{name}-{digest}"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(kept.with_name(f"{kept.name}.lock"), _FETCH_S):
            if not kept.exists():
                fetching = kept.with_name(f"{kept.name}.fetching")
                shutil.rmtree(fetching, ignore_errors=True)
                fetching.mkdir()
                install(fetching)
                fetching.rename(kept)
    return kept


def _install_aiokafka(folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--require-hashes", "--target", str(folder), "-r", str(_AIOKAFKA)]
    _fetch([*pip, *options], folder)


def _install_npm(folder: Path) -> None:
    for pin in _NPM:
        shutil.copy(pin, folder)
    _fetch(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)


def _package_ringfence(folder: Path) -> None:
    shutil.copytree(_PROJECT / "src", folder / "src")
    shutil.copy(_PROJECT / "pom.xml", folder)
    _fetch(["mvn", "--batch-mode", "--quiet", "-Dstyle.color=never", "package"], folder)


def _fetch(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False
    )
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
