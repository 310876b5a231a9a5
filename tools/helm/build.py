"""Builds Helm with Go at the version that go.mod pins and go.sum verifies, once per pin.

The binary's name carries a digest of both files: another pin is another binary, so a stale one is
never used, and a second call costs nothing. The first build takes about two minutes.
"""

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

MODULE_DIR = Path(__file__).parent
TOOLS_DIR = MODULE_DIR.parents[1] / ".run" / "tools"
HELM_PACKAGE = "helm.sh/helm/v4/cmd/helm"
BUILD_TIMEOUT_S = 1800


class GoMissingError(Exception):
    """There is no Go on this machine, so there can be no Helm."""


class HelmBuildError(Exception):
    """Go could not build Helm; the message holds what it printed."""


def helm_binary() -> Path:
    """Return the path of the pinned Helm, building it first where it is missing."""
    binary = _binary_path()
    if not binary.exists():
        _build(binary)
    return binary


def _binary_path() -> Path:
    pin = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        pin.update((MODULE_DIR / name).read_bytes())
    return TOOLS_DIR / f"helm-{pin.hexdigest()[:12]}"


def _build(binary: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise GoMissingError(
            "Helm is built by Go and there is no `go` on PATH: install Go 1.26 or later"
        )
    TOOLS_DIR.mkdir(parents=True, exist_ok=True)
    with (TOOLS_DIR / "helm.lock").open("w") as lock:
        # Parallel test workers ask at once: one builds, the others find the binary.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if binary.exists():
            return
        unfinished = binary.with_suffix(".unfinished")
        built = subprocess.run(
            [go, "build", "-mod=readonly", "-trimpath", "-o", str(unfinished), HELM_PACKAGE],
            cwd=MODULE_DIR,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if built.returncode != 0:
            raise HelmBuildError(
                f"`go build {HELM_PACKAGE}` in {MODULE_DIR} failed, see its output: "
                f"{built.stderr.strip()}"
            )
        unfinished.rename(binary)
