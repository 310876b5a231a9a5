"""Podman as the engine of `RINGFENCE_BROKER=container`: runs a command with an engine, as root.

    python -m tools.broker.engine COMMAND ARGUMENTS…

The command, the engine and its containers are in namespaces of their own, which leave nothing
behind: they have the loopback for a network, a /run and a /var of their own, and end together. The
engine has the image that KafkaContainer names: one with the
layout that KafkaContainer relies on, made of this machine's Java, shell and libraries, and of the
verified jars of the embedded broker. No registry is asked.
"""

import fcntl
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO, Final

from tools.broker.artifacts import kafka
from tools.broker.embedded import LAUNCH
from tools.broker.errors import BrokerError
from tools.broker.node import LOG4J, Machine
from tools.errors import ToolError
from tools.jars import java_command

_PROGRAMS: Final = ("podman", "runc", "netavark", "iptables", "unshare", "hostname")
_PODMANS_PROGRAMS: Final = ("/usr/libexec/podman", "/usr/lib/podman")
_NAMESPACES: Final = (
    *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
_INSIDE: Final = "--inside"
_OWN_FOLDERS: Final = ("run", "var")
"""Where Podman and its network programs keep files, whatever their settings."""
_SOCKET: Final = "/run/podman.sock"
_ENVIRONMENT: Final = {
    "DOCKER_HOST": f"unix://{_SOCKET}",
    "RINGFENCE_BROKER": "container",
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}
_START_S: Final = 60.0
_POLL_S: Final = 0.05
_IFF_UP, _SIOCSIFFLAGS = 1, 0x8914

# The limits and filters that Podman sets otherwise are refused where it runs in a container itself.
# Its locks would be in shared memory, which is the machine's.
_SETTINGS: Final = """
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
seccomp_profile = "unconfined"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
compat_api_enforce_docker_hub = false
[network]
network_backend = "netavark"
"""

_JARS: Final = "/usr/share/java/kafka"
_OPTIONS: Final = " ".join(Machine(heap_mb=512, short_lived=True).options())
_JAVA: Final = f"java {_OPTIONS} -cp '{_JARS}/*' -Dlog4j2.configurationFile={_JARS}/{LOG4J.name}"
_SCRIPTS: Final = {
    "etc/confluent/docker/bash-config": "",
    "etc/confluent/docker/configure": """#!/bin/bash
        for name in ${!KAFKA_@}; do
            property=${name#KAFKA_} property=${property,,}
            echo "${property//_/.}=${!name}"
        done > /etc/kafka/kafka.properties
        """,
    "etc/confluent/docker/launch": f"""#!/bin/bash
        exec {_JAVA} kafka.Kafka /etc/kafka/kafka.properties""",
    "usr/bin/kafka-storage": f"""#!/bin/bash
        exec {_JAVA} kafka.tools.StorageTool "$@" """,
    "etc/nsswitch.conf": "hosts: files\n",
}
"""Stand-ins for those of Confluent's image, by their paths in it."""
_SHELL: Final = ("bash", "hostname", "sed", "sleep")
"""What runs KafkaContainer's start script."""
_UNUSED: Final = ("jmods", "src.zip", "ct.sym", "legal", "man", "docs", "include")
"""What of a Java development kit no program needs."""


def missing() -> str:
    """Return why this machine cannot run an engine; empty if it can."""
    path = os.pathsep.join((os.environ["PATH"], *_PODMANS_PROGRAMS))
    if absent := [name for name in _PROGRAMS if shutil.which(name, path=path) is None]:
        return f"a container engine needs {', '.join(absent)}, not installed here"
    tried = subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False)
    return "a container engine needs root and namespaces" if tried.returncode else ""


def main(arguments: Sequence[str]) -> int:
    """Run a command with an engine; return its status. BrokerError if no engine can run."""
    if arguments[0] == _INSIDE:
        return _inside(Path(arguments[1]), arguments[2:])
    if reason := missing():
        raise BrokerError(f"No container can be run: {reason}.")
    kafka().fetched()  # while there is a network
    with tempfile.TemporaryDirectory(prefix="ringfence-engine-") as folder, _cgroups_removed():
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        inside = [sys.executable, "-m", "tools.broker.engine", _INSIDE, folder]
        return subprocess.call([*attached, *_NAMESPACES, *inside, *arguments])


@contextmanager
def _cgroups_removed() -> Iterator[None]:
    """Remove what is in no namespace: control groups, unless another engine has them too."""
    groups = (Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/"))
    ours = [path for path in (group / "libpod_parent" for group in groups) if not path.exists()]
    try:
        yield
    finally:
        for folder in (folder for top in ours for folder, _, _ in os.walk(top, topdown=False)):
            with suppress(OSError):  # it has processes
                Path(folder).rmdir()


def _inside(folder: Path, command: Sequence[str]) -> int:
    """Run a command with an engine in the namespaces that were made for both."""
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    for name in _OWN_FOLDERS:
        (folder / name).mkdir()
        subprocess.run(["mount", "--no-mtab", "--bind", str(folder / name), f"/{name}"], check=True)
    Path("/var/tmp").mkdir()  # noqa: S108 - in the folder by now
    settings = folder / "containers.conf"
    settings.write_text(_SETTINGS, "ascii")
    os.environ["CONTAINERS_CONF"] = str(settings)
    # Of all storages vfs alone works on any file system.
    podman = ["podman", "--storage-driver=vfs"]
    _import_image(podman)
    # It ends with this process, as all do.
    engine = subprocess.Popen([*podman, "system", "service", "--time=0", f"unix://{_SOCKET}"])
    _wait_until_it_listens(engine)
    return subprocess.call(command, env={**os.environ, **_ENVIRONMENT})


def _wait_until_it_listens(engine: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and engine.poll() is None:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as tried:
            tried.connect(_SOCKET)
            return
        time.sleep(_POLL_S)
    raise BrokerError("Podman does not listen on its socket: look at what it printed.")


def _import_image(podman: Sequence[str]) -> None:
    from tools.broker.container import IMAGE  # noqa: PLC0415 - needs testcontainers

    java = Path(java_command()).resolve().parents[1]
    path = f"ENV PATH={java}/bin:/usr/bin:/bin"
    command = [*podman, "import", "--quiet", f"--change={path}", "-", IMAGE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as importing:
        assert importing.stdin is not None  # a pipe
        _write_image(importing.stdin, java)
    if importing.returncode:
        raise BrokerError("Podman could not import an image: look at what it printed.")


def _write_image(out: IO[bytes], java: Path) -> None:
    """Write the files of the image as an archive."""
    with tarfile.open(fileobj=out, mode="w|", dereference=True) as archive:
        for folder in ("tmp", "etc/kafka"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            archive.addfile(entry)
        for path, text in _SCRIPTS.items():
            script = tarfile.TarInfo(path)
            script.mode, script.size = 0o755, len(text)
            archive.addfile(script, BytesIO(text.encode("ascii")))
        for path, file in _files(java).items():
            archive.add(file, path)


def _files(java: Path) -> dict[str, Path]:
    """Return the files of this machine that the image has, by their paths in it."""
    jars = [LOG4J, *kafka().fetched().glob("*.jar")]
    files = {f"{_JARS}/{each.name}": each for each in jars}
    for folder, folders, names in os.walk(java, followlinks=True):
        folders[:] = [each for each in folders if each not in _UNUSED]
        paths = (Path(folder, each) for each in names if each not in _UNUSED)
        files |= {str(path): path for path in paths if path.is_file()}
    programs = {f"/bin/{name}": Path(shutil.which(name) or name) for name in _SHELL}
    programs["/bin/sh"] = programs["/bin/bash"]
    linked = [*programs.values(), java / "bin" / "java", *java.glob("lib/**/*.so")]
    listed = subprocess.run(
        ["ldd", *map(str, linked)], capture_output=True, text=True, check=False
    ).stdout
    libraries = re.findall(r"(?:=> |^\t)(/\S+) \(0x", listed, re.MULTILINE)
    return files | programs | {os.path.normpath(each): Path(each) for each in libraries}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as error:
        sys.exit(str(error))
