"""Peers written in Java: fetches and verifies their jars, and compiles our programs for them."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.jars import RUN_FOLDER, Jars

PEERS: Final = Path(__file__).with_name("peers")
_COMPILE_TIMEOUT_S: Final = 120


def classpath(peer: str, program: str) -> str:
    """Return the class path for `program` in the folder of a peer, compiling it if necessary."""
    source = PEERS / peer / f"{program}.java"
    jars = Jars(
        purpose=f"the peer {peer}",
        pom=source.with_name("pom.xml"),
        checksums=source.with_name("jars.sha256"),
        folder=RUN_FOLDER / "bench" / peer,
    ).fetched()
    classes = RUN_FOLDER / "bench" / f"{peer}-classes"
    compiled = classes / f"{program}.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        _compile(source, f"{jars}/*", classes)
    return f"{classes}:{jars}/*"


def _compile(source: Path, jars: str, classes: Path) -> None:
    compiler = shutil.which("javac")
    if compiler is None:
        raise ToolError("No javac on the PATH: install a JDK to compile the peers' programs.")
    command = [compiler, "-Xlint:all", "-Werror", "-cp", jars, "-d", str(classes), str(source)]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S
    )
    if done.returncode:
        raise ToolError(f"{source} does not compile:\n{done.stderr[-2000:]}")
