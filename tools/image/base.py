"""Base images made from Debian packages, for machines that cannot reach a registry.

They replace the official images that the Dockerfile names: one is Python, with a `python` and a
removable pip below /usr/local; the other one has what only builds, Python with a C compiler and
Maven with its Java. They are made once and kept.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from tools.image.buildah import Buildah
from tools.image.errors import ImageError

_SUITE: Final = "bookworm"
_TIMEOUT_S: Final = 900


class Base(NamedTuple):
    """The recipe of a base image."""

    name: str
    packages: tuple[str, ...]
    customize: str = "true"
    """Shell commands that change its files at the end; $1 is their root."""
    excluded_paths: tuple[str, ...] = ()
    """Paths that are not installed from any package."""


PYTHON: Final = Base(
    f"localhost/ringfence-base-python:{_SUITE}-slim",
    ("ca-certificates", "python3", "python3-pip-whl"),
    """
    ln -s /usr/bin/python3 "$1/usr/local/bin/python"
    rm -f "$1"/usr/lib/python3.*/EXTERNALLY-MANAGED
    chroot "$1" sh -c 'PYTHONPATH=$(ls /usr/share/python-wheels/pip-*.whl) python -m pip install \
      --quiet --root-user-action ignore --no-index --find-links /usr/share/python-wheels pip'
    chroot "$1" dpkg --purge python3-pip-whl
    """,
    excluded_paths=("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*"),
)
BUILDER: Final = Base(
    f"localhost/ringfence-base-builder:{_SUITE}",
    (
        *("ca-certificates", "gcc", "libc6-dev", "libpython3-dev", "python3"),
        *("maven", "openjdk-17-jdk-headless"),
    ),
    """ln -s /usr/bin/python3 "$1/usr/local/bin/python" """,
    excluded_paths=("/usr/share/doc/*", "/usr/share/locale/*"),
)


def made(buildah: Buildah, base: Base) -> str:
    """Return the name of a base image, making it first if it is missing."""
    if base.name not in buildah.images():
        context = buildah.folder / "base"
        context.mkdir(parents=True, exist_ok=True)
        _bootstrap(base, context / "base.tar")
        file = context / "Dockerfile"
        file.write_text("FROM scratch\nADD base.tar /\n", encoding="ascii")
        buildah.build(file, context, "--tag", base.name)
        shutil.rmtree(context)
    return base.name


def _bootstrap(base: Base, tar: Path) -> None:
    program = shutil.which("mmdebstrap")
    if program is None:
        raise ImageError("No mmdebstrap on the PATH: install it (Debian: apt install mmdebstrap).")
    done = subprocess.run(
        [
            # In a namespace of its own nobody else can keep its mounts busy, as a program does
            # that walks through all files.
            *("unshare", "--mount"),
            *(program, "--quiet", "--variant=minbase", f"--include={','.join(base.packages)}"),
            *(f"--dpkgopt=path-exclude={path}" for path in base.excluded_paths),
            *(f"--customize-hook={base.customize}", _SUITE, str(tar)),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        errors = "\n".join(done.stderr.splitlines()[-20:])
        raise ImageError(f"mmdebstrap could not make a base image of Debian packages:\n{errors}")
