"""The genuine classes: jars by Maven, compared with our checksums, behind a program each."""

import subprocess
from pathlib import Path
from typing import Final

from tools.jars import RUN_FOLDER, Jars

HERE: Final = Path(__file__).parent
RING: Final = "RingOracle"
"""Artemis' ring."""
AUDIT: Final = "AuditOracle"
"""ActiveMQ's message audit."""
JARS: Final = Jars(
    purpose="the oracle",
    pom=HERE / "pom.xml",
    checksums=HERE / "jars.sha256",
    folder=RUN_FOLDER / "oracle" / "jars",
)
CLASSES: Final = RUN_FOLDER / "oracle" / "classes"

_COMPILE_TIMEOUT_S: Final = 120
_JUDGE_TIMEOUT_S: Final = 300


def prepare() -> None:
    """Fetch what is missing, verify all of it, compile our programs."""
    _run(
        *("javac", "-Xlint:all", "-Werror", "-classpath", _classpath()),
        *("-d", str(CLASSES), *(str(HERE / f"{name}.java") for name in (RING, AUDIT))),
        timeout_s=_COMPILE_TIMEOUT_S,
    )


def judge(trace: bytes, program: str = RING) -> bytes:
    """The answers of a genuine class to an encoded trace."""
    return _run(
        *("java", "-enableassertions", "-Xmx1g", "-classpath", f"{CLASSES}:{_classpath()}"),
        program,
        timeout_s=_JUDGE_TIMEOUT_S,
        stdin=trace,
    )


def _classpath() -> str:
    return f"{JARS.fetched()}/*"


def _run(*command: str, timeout_s: int, stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, timeout=timeout_s)
    said = (done.stdout[-2000:] + done.stderr[-2000:]).decode(errors="replace")
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {said}"
    return done.stdout
