"""Builds a program with Go at the version that a go.mod pins and its go.sum verifies, once per pin.

The binary's name carries a digest of both files, and of the folder's sources where it has any:
another pin is another binary, so a stale one is never used, and a second call costs nothing.
Files of a module that are read, and not built, are fetched and verified in the same way.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

TOOLS_DIR: Final = Path(__file__).parents[1] / ".run" / "tools"
BUILD_TIMEOUT_S: Final = 3600


class GoMissingError(Exception):
    """There is no Go on this machine."""


class GoBuildError(Exception):
    """Go could not build it; the message holds what it printed."""


class GoFiles(NamedTuple):
    """Files of a published module."""

    module: str
    version: str
    digest: str
    """As go.sum has it."""
    paths: tuple[str, ...]

    def folder(self) -> Path:
        """Return where the module lies unpacked, fetching it first where it is missing."""
        TOOLS_DIR.mkdir(parents=True, exist_ok=True)
        place = f"{self.module}@{self.version}"
        # Outside of any module: only this one is asked for, not what it needs.
        asked = [_go(self.module), "mod", "download", "-json", place]
        done = subprocess.run(
            asked, cwd=TOOLS_DIR, capture_output=True, text=True, timeout=600, check=False
        )
        found = json.loads(done.stdout or "{}")
        if "Dir" not in found:
            reason = found.get("Error") or done.stderr.strip()
            raise GoBuildError(f"`go mod download {place}` failed: {reason}")
        if found["Sum"] != self.digest:
            raise GoBuildError(
                f"{place} has the digest {found['Sum']}, and {self.digest} was pinned: see whether "
                "the module proxy is the one you trust"
            )
        return Path(found["Dir"])

    def texts(self) -> list[str]:
        """Return what the files hold."""
        folder = self.folder()
        return [(folder / path).read_text("utf-8") for path in self.paths]


class GoProgram(NamedTuple):
    """A program of a Go module."""

    name: str
    folder: Path
    """Where its go.mod and go.sum are."""
    package: str
    tags: str = ""
    """What Go is to leave out, or to put in."""
    link: str = ""
    """Flags for its linker."""

    def binary(self) -> Path:
        """Return its path, building it first where it is missing."""
        binary = self._path()
        if not binary.exists():
            self._build(binary)
        return binary

    def _path(self) -> Path:
        pin = hashlib.sha256()
        for name in ("go.mod", "go.sum", *sorted(path.name for path in self.folder.glob("*.go"))):
            pin.update((self.folder / name).read_bytes())
        return TOOLS_DIR / f"{self.name}-{pin.hexdigest()[:12]}"

    def _build(self, binary: Path) -> None:
        go = _go(self.name)
        TOOLS_DIR.mkdir(parents=True, exist_ok=True)
        with (TOOLS_DIR / f"{self.name}.lock").open("w") as lock:
            # Parallel test workers ask at once: one builds, the others find the binary.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if binary.exists():
                return
            unfinished = binary.with_suffix(".unfinished")
            how = ["-mod=readonly", "-trimpath", f"-tags={self.tags}", "-o", str(unfinished)]
            how += [f"-ldflags={self.link}"] if self.link else []
            built = subprocess.run(
                [go, "build", *how, self.package],
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if built.returncode != 0:
                raise GoBuildError(
                    f"`go build {self.package}` in {self.folder} failed, see its output: "
                    f"{built.stderr.strip()}"
                )
            unfinished.rename(binary)


def _go(what: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise GoMissingError(
            f"{what} is built by Go and there is no `go` on PATH: install Go 1.26 or later"
        )
    return go
