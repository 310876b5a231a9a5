"""Folder of one broker: its properties, data and log, and the command that runs the broker.

`prepare` may be called repeatedly: existing data is kept, and the ports too if they are free.
Only one broker at a time can run on a folder, since Kafka locks the data.
"""

import fcntl
import shutil
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tools.broker import config
from tools.broker.artifacts import kafka
from tools.broker.errors import BrokerError
from tools.jars import java_command

LOG4J = Path(__file__).with_name("log4j2.xml")
_META = "meta.properties"
_FORMAT_TIMEOUT_S = 120.0
_LOG_TAIL_LINES = 15
# For a program that would take longer to compile well than to run.
_COMPILED_QUICKLY = ("-XX:TieredStopAtLevel=1",)


class Node(NamedTuple):
    """The folder of one broker, and its ports."""

    folder: Path
    ports: config.Ports

    @property
    def bootstrap_servers(self) -> str:
        """Return the bootstrap servers for clients."""
        return f"{config.HOST}:{self.ports.client}"

    @property
    def properties_path(self) -> Path:
        """Return the path of the server properties."""
        return self.folder / "server.properties"

    @property
    def data_folder(self) -> Path:
        """Return the folder of the Kafka logs."""
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        """Return the path of the log, which all runs of this node append to."""
        return self.folder / "broker.log"

    @property
    def cluster_id(self) -> str | None:
        """Return the id of the cluster that the data belongs to; None before it is formatted."""
        return _values(self.data_folder / _META).get("cluster.id")

    @property
    def number(self) -> str:
        """Return the node id, after its properties were written."""
        return _values(self.properties_path)["node.id"]


def open_node(folder: Path, preferred_port: int = 0) -> Node:
    """Create the folder and choose the ports, without starting anything."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ports = config.choose_ports(folder / "server.properties", preferred=preferred_port)
    return Node(folder, ports)


class Machine(NamedTuple):
    """Options of the Java virtual machine."""

    heap_mb: int = 1024
    short_lived: bool = False
    archive: Path | None = None
    """Where it dumps its loaded classes when it exits normally."""

    def options(self) -> list[str]:
        """Return the options for Java; those of a short-lived one halve the work of a start."""
        heap = ["-Xms256m", f"-Xmx{self.heap_mb}m", "-XX:+ExitOnOutOfMemoryError"]
        quick = [*_COMPILED_QUICKLY, "-XX:+UseSerialGC"] if self.short_lived else []
        dump = [] if self.archive is None else [f"-XX:ArchiveClassesAtExit={self.archive}"]
        return [*heap, *quick, *dump]

    def properties(self) -> dict[str, str]:
        """Return the server properties for this machine."""
        return config.quiet_properties() if self.short_lived else {}


def prepare(
    node: Node, properties: Mapping[str, str], machine: Machine, cluster_id: str | None = None
) -> list[str]:
    """Write the properties, format the data folder once, and return the command to run.

    New data belongs to the cluster `cluster_id`, or to a new one.
    """
    if is_running(node.folder):
        message = f"A broker already runs on {node.folder}: stop it, or use another folder."
        raise BrokerError(message)
    jars = kafka()
    archive = jars.archive
    java = [
        *(java_command(), "-cp", f"{jars.fetched()}/*"),
        # Java ignores an archive that was written by another Java or for other jars.
        *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []),
        *(f"-Dlog4j2.configurationFile={LOG4J}", "-Djava.awt.headless=true"),
    ]
    ours = config.server_properties(node.ports, node.data_folder)
    text = config.to_properties_text({**ours, **machine.properties(), **properties})
    node.properties_path.write_text(text, encoding="ascii")
    if node.cluster_id is None:
        _format(java, node, cluster_id or new_cluster_id(), jars.formatted)
    return [*java, *machine.options(), "kafka.Kafka", str(node.properties_path)]


def is_running(folder: Path) -> bool:
    """Return whether a broker of any process holds the lock of the folder's data."""
    try:
        with (folder / "data" / ".lock").open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def log_tail(node: Node) -> str:
    """Return the last lines of the log, to append to an error message."""
    if not node.log_path.exists():
        return f"{node.log_path} was not written."
    lines = node.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"The end of {node.log_path}:", *lines[-_LOG_TAIL_LINES:]])


def _values(path: Path) -> dict[str, str]:
    """Return the values of a properties file; empty if there is none."""
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    found = (line.partition("=") for line in lines)
    return {key: value for key, equals, value in found if equals}


def new_cluster_id() -> str:
    """Return a unique cluster id."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")


def _format(java: list[str], node: Node, cluster_id: str, kept: Path) -> None:
    """Format the data folder: as Kafka's own tool once did, whose files are in `kept`.

    That saves the start of a Java virtual machine for each new broker.
    """
    if not kept.exists():
        _format_with_kafka(java, node, cluster_id)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            copied = shutil.copytree(node.data_folder, Path(folder) / kept.name)
            with suppress(OSError):  # another process was faster
                copied.rename(kept)
        return
    own = {"node.id": node.number, "cluster.id": cluster_id, "directory.id": new_cluster_id()}
    values = {key: own.get(key, value) for key, value in _values(kept / _META).items()}
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    shutil.copytree(kept, node.data_folder, ignore=lambda *_: [_META], dirs_exist_ok=True)
    # Last, because a folder that has it counts as formatted.
    partial = node.data_folder / f"{_META}.partial"
    partial.write_text(text, encoding="ascii")
    partial.rename(node.data_folder / _META)


def _format_with_kafka(java: list[str], node: Node, cluster_id: str) -> None:
    command = [
        *(*java, *_COMPILED_QUICKLY, "kafka.tools.StorageTool", "format"),
        # Half-formatted data of a killed start is formatted again.
        *(
            "--ignore-formatted",
            "--config",
            str(node.properties_path),
            f"--cluster-id={cluster_id}",
        ),
    ]
    done = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_FORMAT_TIMEOUT_S,
    )
    if done.returncode != 0:
        output = "\n".join(done.stdout.splitlines()[-_LOG_TAIL_LINES:])
        message = (
            f"Kafka could not format {node.data_folder} (status {done.returncode});"
            f" look at {node.properties_path}. Its output:\n{output}"
        )
        raise BrokerError(message)
