"""Go programs and module files, pinned by go.mod and verified by go.sum; built once per pin.

The name of a binary contains a digest of both files and of the folder's Go sources, if any. Another
pin is another binary, so a stale one is never used, and a second call costs nothing. Module files
that are only read are fetched and verified in the same way.
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
    """Go is not installed on this machine."""


class GoBuildError(Exception):
    """Go failed to fetch or build; the message contains its output."""


class GoFiles(NamedTuple):
    """Files of a published module."""

    module: str
    version: str
    digest: str
    """In the form of go.sum."""
    paths: tuple[str, ...]

    def folder(self) -> Path:
        """Return the folder of the unpacked module, fetching it first if it is missing."""
        TOOLS_DIR.mkdir(parents=True, exist_ok=True)
        pinned = f"{self.module}@{self.version}"
        # Run outside any module, so that only this one is fetched and not its dependencies.
        command = [_go(self.module), "mod", "download", "-json", pinned]
        done = subprocess.run(
            command, cwd=TOOLS_DIR, capture_output=True, text=True, timeout=600, check=False
        )
        found = json.loads(done.stdout or "{}")
        if "Dir" not in found:
            reason = found.get("Error") or done.stderr.strip()
            raise GoBuildError(f"`go mod download {pinned}` failed: {reason}")
        if found["Sum"] != self.digest:
            raise GoBuildError(
                f"{pinned} has the digest {found['Sum']}, and {self.digest} was pinned: check that "
                "the module proxy is one you trust"
            )
        return Path(found["Dir"])

    def texts(self) -> list[str]:
        """Return the contents of the files."""
        folder = self.folder()
        return [(folder / path).read_text("utf-8") for path in self.paths]


class GoProgram(NamedTuple):
    """A program of a Go module."""

    name: str
    folder: Path
    """Where its go.mod and go.sum are."""
    package: str
    tags: str = ""
    """Build tags."""
    link: str = ""
    """Linker flags."""
    is_optimised: bool = False
    """Whether it has to run fast; without that a build takes a third less CPU time."""

    def binary(self) -> Path:
        """Return the path of the binary, building it first if it is missing."""
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
            # Of several test processes one builds, and the others find the binary.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if binary.exists():
                return
            unfinished = binary.with_suffix(".unfinished")
            options = ["-mod=readonly", "-trimpath", f"-tags={self.tags}", "-o", str(unfinished)]
            options += [f"-ldflags={self.link}"] if self.link else []
            options += [] if self.is_optimised else ["-gcflags=all=-N -l"]
            built = subprocess.run(
                [go, "build", *options, self.package],
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
            if built.returncode != 0:
                raise GoBuildError(
                    f"`go build {self.package}` in {self.folder} failed:\n{built.stderr.strip()}"
                )
            unfinished.rename(binary)


def _go(target: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise GoMissingError(
            f"{target} is built by Go and no `go` is on the PATH: install Go 1.26 or later"
        )
    return go
