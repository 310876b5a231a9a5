"""Files of npm packages, each fetched once and checked by its hash."""

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tools.errors import ToolError

_FETCH_TIMEOUT_S: Final = 300.0


class NpmFileMissingError(ToolError):
    """The file cannot be fetched on this machine."""


class NpmFile(NamedTuple):
    """One file of a version of a package."""

    package: str
    version: str
    member: str
    """Path in the archive of the package."""
    sha256: str

    def path(self, folder: Path) -> Path:
        """Return the path of the file in a folder, fetching it first if it is missing.

        Raise NpmFileMissingError where npm is missing or fails, ToolError if the content differs.
        """
        name, suffix = self.member.rpartition("/")[2].split(".", 1)
        file = folder / f"{name}-{self.version}.{suffix}"
        if not file.exists():
            content = self._fetched()
            folder.mkdir(parents=True, exist_ok=True)
            fetching = file.with_suffix(".fetching")
            fetching.write_bytes(content)
            fetching.rename(file)
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.sha256:
            raise ToolError(f"{file} is not of {self}: delete it, then try again.")
        return file

    def __str__(self) -> str:
        return f"{self.package} {self.version}"

    def _fetched(self) -> bytes:
        npm = shutil.which("npm")
        if npm is None:
            raise NpmFileMissingError(f"npm is not installed, which fetches {self.package}")
        with tempfile.TemporaryDirectory() as folder:
            package = f"{self.package}@{self.version}"
            command = [npm, "pack", package, "--pack-destination", folder]
            try:
                subprocess.run(
                    command, cwd=folder, check=True, capture_output=True, timeout=_FETCH_TIMEOUT_S
                )
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
                raise NpmFileMissingError(f"npm did not fetch {self}") from failed
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                member = archive.extractfile(self.member)
                if member is None:
                    raise ToolError(f"{self} has no {self.member}.")
                return member.read()
