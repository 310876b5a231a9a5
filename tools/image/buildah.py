"""Buildah: builds and runs images as one process of its own, without an engine or a daemon.

Everything lies below one folder; nothing of the user's own images is seen or touched.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.image.errors import ImageError

_BUILD_TIMEOUT_S: Final = 1800


class Buildah(NamedTuple):
    """Buildah with images of its own."""

    folder: Path

    def run(self, *arguments: str, timeout_s: float = _BUILD_TIMEOUT_S) -> str:
        """Run a command of it and return what it prints; ImageError with its words if it fails."""
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise ImageError(f"`buildah {' '.join(arguments)}` failed:\n{said}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        """The words of a command of it."""
        buildah = shutil.which("buildah")
        if buildah is None:
            raise ImageError("No buildah on the PATH: install it (Debian: apt install buildah).")
        # A container's files are copied whole, which any file system can do.
        where = ("--root", str(self.folder / "images"), "--runroot", str(self.folder / "run"))
        return [buildah, *where, "--storage-driver", "vfs", *arguments]

    def environment(self) -> dict[str, str]:
        """What it is told beside its arguments: to need no right to make containers."""
        return {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def images(self) -> list[str]:
        """The names of the images that are there."""
        return self.run("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def build(self, file: Path, context: Path, *options: str) -> None:
        """Build an image from a Dockerfile."""
        self.run("bud", "--format", "oci", "--file", str(file), *options, str(context))

    def container(self, image: str) -> "Container":
        """Make a container of an image; whoever asked removes it."""
        return Container(self, self.run("from", "--pull-never", image).strip())

    def config(self, image: str) -> dict[str, Any]:
        """What an image says of how it is run."""
        told = json.loads(self.run("inspect", "--type", "image", image))
        found: dict[str, Any] = told["OCIv1"]["config"]
        return found


class Container(NamedTuple):
    """A container that nothing runs in yet."""

    buildah: Buildah
    name: str

    def command(self, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """The words that run a command in it, as the user of the image."""
        return self.buildah.command("run", *options, self.name, "--", *arguments)

    def run(self, *arguments: str) -> str:
        """Run a command in it and return what it prints."""
        return self.buildah.run("run", self.name, "--", *arguments, timeout_s=60)

    def files(self) -> Path:
        """Where its files lie."""
        return Path(self.buildah.run("mount", self.name).strip())

    def remove(self) -> None:
        """Take it away, and its files."""
        self.buildah.run("rm", self.name)
