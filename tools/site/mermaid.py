"""mermaid.js, which draws the diagrams in a browser: one file of the npm package, by its hash."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools.errors import ToolError

VERSION: Final = "11.17.2"
MEMBER: Final = "package/dist/mermaid.min.js"
SHA256: Final = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
_FETCH_TIMEOUT_S: Final = 300.0


class MermaidMissingError(ToolError):
    """The script cannot be fetched on this machine."""


def mermaid_script(folder: Path) -> Path:
    """Return the path of the script in a folder, fetching it first if it is missing.

    Raise MermaidMissingError where npm is missing or fails, ToolError if the content is another.
    """
    script = folder / f"mermaid-{VERSION}.min.js"
    if not script.exists():
        content = _fetched()
        folder.mkdir(parents=True, exist_ok=True)
        fetching = script.with_suffix(".fetching")
        fetching.write_bytes(content)
        fetching.rename(script)
    if hashlib.sha256(script.read_bytes()).hexdigest() != SHA256:
        raise ToolError(f"{script} is not mermaid {VERSION}: delete it, then try again.")
    return script


def _fetched() -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise MermaidMissingError("npm is not installed, which fetches mermaid")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"mermaid@{VERSION}", "--pack-destination", folder]
        try:
            subprocess.run(
                command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_TIMEOUT_S
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
            raise MermaidMissingError(f"npm did not fetch mermaid {VERSION}") from failed
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as package:
            member = package.extractfile(MEMBER)
            if member is None:
                raise ToolError(f"mermaid {VERSION} has no {MEMBER}.")
            return member.read()
