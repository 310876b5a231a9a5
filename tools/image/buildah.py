"""Buildah wrapper: builds and runs images in plain processes, without an engine or a daemon.

All its storage is below one folder; it neither sees nor changes the user's own images.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.image.errors import ImageError

_BUILD_TIMEOUT_S: Final = 1800
_NO_MOUNT_OF_ITS_OWN: Final = "overlay.skip_mount_home=true"


class Buildah(NamedTuple):
    """Buildah with its own image storage."""

    folder: Path

    def run(self, *arguments: str, timeout_s: float = _BUILD_TIMEOUT_S) -> str:
        """Run a buildah command and return its output; raise ImageError if it fails."""
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
            output = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise ImageError(f"`buildah {' '.join(arguments)}` failed:\n{output}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        """Return the argument list of a buildah command."""
        buildah = shutil.which("buildah")
        if buildah is None:
            raise ImageError("No buildah on the PATH: install it (Debian: apt install buildah).")
        return [buildah, *_storage(buildah, self.folder), *arguments]

    def environment(self) -> dict[str, str]:
        """Return its environment, with chroot isolation, which needs no right to run containers."""
        return {**os.environ, "BUILDAH_ISOLATION": "chroot"}

    def images(self) -> list[str]:
        """Return the names of the existing images."""
        return self.run("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def build(self, file: Path, context: Path, *options: str) -> None:
        """Build an image from a Dockerfile."""
        self.run("bud", "--format", "oci", "--file", str(file), *options, str(context))

    def container(self, image: str) -> "Container":
        """Create a container of an image; the caller has to remove it."""
        return Container(self, self.run("from", "--pull-never", image).strip())

    def config(self, image: str) -> dict[str, Any]:
        """Return the OCI configuration of an image."""
        document = json.loads(self.run("inspect", "--type", "image", image))
        config: dict[str, Any] = document["OCIv1"]["config"]
        return config


class Container(NamedTuple):
    """A container without a running process."""

    buildah: Buildah
    name: str

    def command(self, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """Return the argument list that runs a command in it, as the user of the image."""
        return self.buildah.command("run", *options, self.name, "--", *arguments)

    def run(self, *arguments: str) -> str:
        """Run a command in it and return its output; raise ImageError if it fails."""
        return self.buildah.run("run", self.name, "--", *arguments, timeout_s=60)

    def files(self) -> Path:
        """Return the root folder of its files."""
        return Path(self.buildah.run("mount", self.name).strip())

    def remove(self) -> None:
        """Delete the container and its files."""
        self.buildah.run("rm", self.name)


@cache
def _storage(buildah: str, folder: Path) -> tuple[str, ...]:
    """Return the options for the storage: overlay, or where that cannot be mounted, vfs.

    vfs works on any file system, but copies all files of an image for each container and layer,
    which takes 10 CPU seconds for the service's.
    """
    storage = ("--root", str(folder / "images"), "--runroot", str(folder / "run"))
    # Without a mount of its own folder, which would stay there and keep it from being deleted.
    overlay = (*storage, "--storage-driver", "overlay", "--storage-opt", _NO_MOUNT_OF_ITS_OWN)
    tried = subprocess.run([buildah, *overlay, "images"], capture_output=True, check=False)
    return overlay if tried.returncode == 0 else (*storage, "--storage-driver", "vfs")
