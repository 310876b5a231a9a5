"""Files of a release except the image: packages, chart, bill of materials, notes, checksums.

They are built from an export of the commit and contain the time of the commit, so the same commit
gives the same bytes.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.go import GoBuildError, GoMissingError
from tools.helm.build import HELM
from tools.image.contents import Package, as_cyclonedx
from tools.release.errors import BuildError
from tools.release.source import Source

CHECKSUMS: Final = "SHA256SUMS"
PLATFORMS: Final[Mapping[str, str]] = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
}
"""The platforms of the wheels of the compiled fast path, and what Zig calls them.

They are those of the wheels of confluent-kafka, whose librdkafka the extension uses. Zig compiles C
for all of them, against the oldest C library that a platform has.
"""
_TIMEOUT_S: Final = 600
_BUILD: Final = (
    "import sys; from hatchling.build import build_sdist, build_wheel;"
    "build_sdist(sys.argv[1]); build_wheel(sys.argv[1])"
)
_PACK_NATIVE: Final = (
    "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
)
_BUILD_NATIVE: Final = (
    "import sys; from setuptools.build_meta import build_wheel;"
    "build_wheel(sys.argv[1], {'--build-option': ['--plat-name', sys.argv[2]]})"
)


def build(source: Source, folder: Path) -> None:
    """Build all but the image and the checksums into a folder; raise BuildError."""
    name = f"ringfence_server-{source.version}"
    with tempfile.TemporaryDirectory(prefix="ringfence-release-") as temporary:
        exported = Path(temporary) / "source"
        source.export(exported)
        for project in (exported / "ringfence", exported):
            _run(source, project, {}, sys.executable, "-c", _BUILD, str(folder))
        _run(source, exported / "native", {}, sys.executable, "-c", _PACK_NATIVE, str(folder))
        _set_times(folder / f"ringfence_native-{source.version}.tar.gz", source.committed_s)
        headers = _headers(Path(temporary) / "headers")
        for platform, target in PLATFORMS.items():
            _build_native(source, exported / "native", headers, platform, target, folder)
        _package_chart(source, exported / "deploy" / "helm" / "ringfence", folder)
        locked = exported / "requirements" / "service.txt"
        shutil.copy(locked, folder / f"{name}.requirements.txt")
        bill = as_cyclonedx("ringfence-server", source.version, locked_packages(locked))
    (folder / f"{name}.cdx.json").write_text(bill, "utf-8")
    notes = folder / f"ringfence-{source.version}.notes.md"
    notes.write_text(source.section.notes, "utf-8")


def locked_packages(file: Path) -> list[Package]:
    """Return the packages of a lock file, for all platforms that it covers."""
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", file.read_text("utf-8"), re.MULTILINE)
    return [Package("pypi", name.lower(), version) for name, version in found]


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of every file of a folder, as `sha256sum --check` reads it."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines), "ascii")


def _package_chart(source: Source, chart: Path, folder: Path) -> None:
    try:
        helm = HELM.binary()
    except (GoMissingError, GoBuildError) as unavailable:
        raise BuildError(f"The chart cannot be packaged: {unavailable}") from unavailable
    command = [str(helm), "package", str(chart), "--destination", str(folder)]
    _run(source, chart.parent, {}, *command)


def _set_times(archive: Path, time_s: int) -> None:
    """Give all files of an archive one time and no owner: setuptools has those of today."""
    content = io.BytesIO()
    with tarfile.open(archive) as given, tarfile.open(fileobj=content, mode="w") as made:
        for each in given:
            each.mtime, each.pax_headers = time_s, {}  # which has fractions of a second
            each.uid, each.gid, each.uname, each.gname = 0, 0, "", ""
            each.mode = 0o755 if each.isdir() else 0o644
            made.addfile(each, given.extractfile(each) if each.isfile() else None)
    archive.write_bytes(gzip.compress(content.getvalue(), mtime=time_s))


def _headers(folder: Path) -> Path:
    """Fill a folder with the headers that Debian's Python has below the name of a platform, if any.

    The configuration of Python is that of the machine that builds: what the stable ABI has of it is
    the same on both platforms.
    """
    include = Path(sysconfig.get_path("include"))
    own = include.parent / str(sysconfig.get_config_var("MULTIARCH")) / include.name / "pyconfig.h"
    for target in PLATFORMS.values() if own.exists() else ():
        theirs = folder / f"{target.split('-')[0]}-linux-gnu" / include.name
        theirs.mkdir(parents=True)
        shutil.copy(own, theirs)
    return folder


def _build_native(
    source: Source, project: Path, headers: Path, platform: str, target: str, folder: Path
) -> None:
    compiler = f"{sys.executable} -m ziglang cc -target {target}"
    flags = f"-g0 -I{headers}"
    environment = {"CC": compiler, "LDSHARED": f"{compiler} -shared -s", "CFLAGS": flags}
    command = [sys.executable, "-c", _BUILD_NATIVE, str(folder), platform]
    _run(source, project, environment, *command)
    shutil.rmtree(project / "build")  # the next platform needs other objects


def _run(source: Source, cwd: Path, environment: Mapping[str, str], *command: str) -> None:
    """Run a program with the time of the commit as the time of what it builds."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment, "SOURCE_DATE_EPOCH": str(source.committed_s)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise BuildError(f"`{' '.join(command)}` failed:\n{output}")
