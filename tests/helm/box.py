"""Box: what a container sees of its node: a root that cannot be written, and what is mounted.

Made of a user and a mount namespace by `unshare`, so it needs neither an engine nor root, and goes
with the process. Network and processes are the machine's own. Who runs in it has the container's
user id, no capability and no way to get one.
"""

import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--mount")
_SYSTEM: Final = ("/bin", "/lib", "/lib64", "/sbin", "/usr")
_FILES: Final = ("hosts", "ld.so.cache", "nsswitch.conf", "resolv.conf", "ssl")
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")


class Mount(NamedTuple):
    """A folder or file of this machine, and where it stands in the box."""

    source: Path
    path: Path
    read_only: bool


class Box(NamedTuple):
    """All that makes a box. `root` is an empty folder, and stays one for everybody else."""

    root: Path
    user: int
    group: int
    mounts: Sequence[Mount]
    work_folder: Path

    def command(self) -> list[str]:
        """What goes before a command that shall run in it; the process stays the same one."""
        return [*_NAMESPACE, "sh", "-euc", "\n".join(self._steps()), "sh"]

    def _steps(self) -> Iterator[str]:
        yield f"mount -t tmpfs none {self._at('/')}"
        yield f"mkdir -p {self._at('/dev/shm')} {self._at('/proc')}"  # noqa: S108 - the box's own
        yield f"mount --rbind /proc {self._at('/proc')}"
        # As much shared memory as a container gets.
        yield f"mount -t tmpfs -o size=64m none {self._at('/dev/shm')}"  # noqa: S108
        for path in map(Path, _SYSTEM):
            if path.is_symlink():
                yield f"ln -s {path.readlink()} {self._at(path)}"
            elif path.exists():
                yield from self._bound(Mount(path, path, read_only=True))
        for path in [Path("/dev", name) for name in _DEVICES]:
            yield from self._bound(Mount(path, path, read_only=False))
        for path in [Path("/etc", name) for name in _FILES]:
            if path.exists():
                yield from self._bound(Mount(path.resolve(), path, read_only=True))
        # What holds others goes first, or it would hide them.
        for mount in sorted(self.mounts, key=lambda mount: len(mount.path.parts)):
            if mount.path.parts[:2] != ("/", "usr"):
                yield from self._bound(mount)
        yield f"mount -o remount,ro {self._at('/')}"
        user, group = f"--map-user={self.user}", f"--map-group={self.group}"
        where = f"--root={self._at('/')} --wd={self.work_folder}"
        yield f'exec unshare --user {user} {group} {where} setpriv --no-new-privs "$@"'

    def _bound(self, mount: Mount) -> Iterator[str]:
        there = self._at(mount.path)
        if mount.source.is_dir():
            yield f"mkdir -p {there}"
        else:
            yield f"mkdir -p {self._at(mount.path.parent)}; touch {there}"
        # What others have mounted in a folder comes along: alone it is not given to a user.
        how = "--rbind -o ro" if mount.read_only else "--rbind"
        yield f"mount {how} {shlex.quote(str(mount.source))} {there}"

    def _at(self, path: str | Path) -> str:
        return shlex.quote(f"{self.root}{path}")


def why_none() -> str | None:
    """Why no box can be made on this machine; None where one can."""
    absent = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed (util-linux)"
    if subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        return "mounting is not permitted: no user namespaces here"
    return None
