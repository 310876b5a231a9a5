"""The folder of one node: its properties, its data and its log, and the command that serves them.

`prepare` may be called again and again: data that is there is kept, ports too if they are free.
Only one broker at a time can run on a folder: Kafka itself locks the data.
"""

import fcntl
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tools.broker import config
from tools.broker.artifacts import kafka
from tools.broker.errors import BrokerError
from tools.jars import java_command

_LOG4J = Path(__file__).with_name("log4j2.xml")
_FORMAT_TIMEOUT_S = 120.0
_LOG_TAIL_LINES = 15
# Where compiling the program well would take longer than running it.
_COMPILED_QUICKLY = ("-XX:TieredStopAtLevel=1",)


class Node(NamedTuple):
    """Where one broker lives, and where it listens."""

    folder: Path
    ports: config.Ports

    @property
    def bootstrap_servers(self) -> str:
        """Return what a client starts from."""
        return f"{config.HOST}:{self.ports.client}"

    @property
    def properties_path(self) -> Path:
        """Return the file that Kafka is started with."""
        return self.folder / "server.properties"

    @property
    def data_folder(self) -> Path:
        """Return the folder of all that is acknowledged."""
        return self.folder / "data"

    @property
    def log_path(self) -> Path:
        """Return the file that holds what every run of this node had to say."""
        return self.folder / "broker.log"

    @property
    def cluster_id(self) -> str | None:
        """Return the cluster that the data belongs to; None before it was formatted."""
        path = self.data_folder / "meta.properties"
        lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
        return next((line[11:] for line in lines if line.startswith("cluster.id=")), None)


def open_node(folder: Path) -> Node:
    """Make the folder and choose the ports; nothing is started."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return Node(folder, config.choose_ports(folder / "server.properties"))


class Machine(NamedTuple):
    """How the Java machine is set up."""

    heap_mb: int = 1024
    short_lived: bool = False
    archive: Path | None = None
    """Where it leaves the classes that it has loaded, when it ends in an orderly way."""

    def options(self) -> list[str]:
        """Return the options for Java; a short-lived one starts with half the work."""
        heap = ["-Xms256m", f"-Xmx{self.heap_mb}m", "-XX:+ExitOnOutOfMemoryError"]
        quick = [*_COMPILED_QUICKLY, "-XX:+UseSerialGC"] if self.short_lived else []
        dump = [] if self.archive is None else [f"-XX:ArchiveClassesAtExit={self.archive}"]
        return [*heap, *quick, *dump]

    def properties(self) -> dict[str, str]:
        """Return the server properties that it asks for."""
        return config.quiet_properties() if self.short_lived else {}


def prepare(
    node: Node, properties: Mapping[str, str], machine: Machine, cluster_id: str | None = None
) -> list[str]:
    """Write the properties, format the data folder once, and return the command to run.

    Data that is not there yet belongs to the named cluster, or to a new one.
    """
    if is_running(node.folder):
        message = f"A broker already runs on {node.folder}: stop it, or take another folder."
        raise BrokerError(message)
    jars = kafka()
    archive = jars.archive
    java = [
        *(java_command(), "-cp", f"{jars.fetched()}/*"),
        # Java passes over an archive that another Java, or other jars, have left.
        *([f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []),
        *(f"-Dlog4j2.configurationFile={_LOG4J}", "-Djava.awt.headless=true"),
    ]
    ours = config.server_properties(node.ports, node.data_folder)
    text = config.to_properties_text({**ours, **machine.properties(), **properties})
    node.properties_path.write_text(text, encoding="ascii")
    if node.cluster_id is None:
        _format(java, node, cluster_id or new_cluster_id())
    return [*java, *machine.options(), "kafka.Kafka", str(node.properties_path)]


def is_running(folder: Path) -> bool:
    """Tell whether a broker, of whatever process, holds the lock of the folder's data."""
    try:
        with (folder / "data" / ".lock").open("r+") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def log_tail(node: Node) -> str:
    """Return the last lines of the log, to stand below an error."""
    if not node.log_path.exists():
        return f"{node.log_path} was not written."
    lines = node.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join([f"The end of {node.log_path}:", *lines[-_LOG_TAIL_LINES:]])


def new_cluster_id() -> str:
    """Return an id that no other cluster has."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")


def _format(java: list[str], node: Node, cluster_id: str) -> None:
    command = [
        *(*java, *_COMPILED_QUICKLY, "kafka.tools.StorageTool", "format"),
        # Half-formatted data, of a start that was killed, is formatted again.
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
        said = "\n".join(done.stdout.splitlines()[-_LOG_TAIL_LINES:])
        message = (
            f"Kafka could not format {node.data_folder} (status {done.returncode});"
            f" look at {node.properties_path}. It said:\n{said}"
        )
        raise BrokerError(message)
