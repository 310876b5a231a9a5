"""The genuine ring: Artemis' jars by Maven, compared with our checksums, behind RingOracle.java."""

import hashlib
import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
SOURCE: Final = HERE / "RingOracle.java"
CHECKSUMS: Final = HERE / "jars.sha256"
FOLDER: Final = HERE.parents[1] / ".run" / "oracle"
JARS: Final = FOLDER / "jars"
CLASSES: Final = FOLDER / "classes"

_FETCH_TIMEOUT_S: Final = 600
_COMPILE_TIMEOUT_S: Final = 120
_JUDGE_TIMEOUT_S: Final = 300


def prepare() -> None:
    """Fetch what is missing, verify all of it, compile our program."""
    if _wrong_jars():
        _run(
            *("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml")),
            *("dependency:copy-dependencies", f"-DoutputDirectory={JARS}"),
            timeout_s=_FETCH_TIMEOUT_S,
        )
    wrong = _wrong_jars()
    assert not wrong, f"{wrong} in {JARS} differ from {CHECKSUMS.name}: delete them, try again"
    _run(
        *("javac", "-Xlint:all", "-Werror", "-classpath", _classpath()),
        *("-d", str(CLASSES), str(SOURCE)),
        timeout_s=_COMPILE_TIMEOUT_S,
    )


def judge(trace: bytes) -> bytes:
    """The answers of the genuine ring to an encoded trace."""
    return _run(
        *("java", "-enableassertions", "-Xmx1g", "-classpath", f"{CLASSES}:{_classpath()}"),
        "RingOracle",
        timeout_s=_JUDGE_TIMEOUT_S,
        stdin=trace,
    )


def _classpath() -> str:
    """The verified jars, and no other that may lie beside them."""
    return ":".join(str(JARS / name) for name in _checksums())


def _wrong_jars() -> list[str]:
    return [name for name, expected in _checksums().items() if _checksum(JARS / name) != expected]


def _checksums() -> dict[str, str]:
    lines = (line.split() for line in CHECKSUMS.read_text(encoding="utf-8").splitlines())
    return {name: checksum for checksum, name in lines}


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


def _run(*command: str, timeout_s: int, stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, timeout=timeout_s)
    said = (done.stdout[-2000:] + done.stderr[-2000:]).decode(errors="replace")
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {said}"
    return done.stdout
