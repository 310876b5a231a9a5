"""Embedded broker: a Kafka process, started from verified jars, that never outlives this process.

Between `start` and `stop` it can be killed, frozen and restarted on the same data and ports.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.broker import config
from tools.broker import secured as users
from tools.broker.errors import BrokerError
from tools.broker.node import Machine, Node, log_tail, open_node, prepare
from tools.broker.ready import START_TIMEOUT_S, wait_until_ready

DEFAULT_MACHINE: Final = Machine()
LAUNCH: Final = Path(__file__).with_name("launch.py")
STOP_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.01

# The kernel ends a child with the *thread* that started it. This thread lives as long as the
# process, so a caller may start a broker from a thread that ends.
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="broker-starter")


class EmbeddedBroker:
    """One Apache Kafka node on the loopback address, in a folder of its own."""

    controllable: Final = True

    def __init__(
        self,
        folder: Path,
        *,
        properties: Mapping[str, str] | None = None,
        secured: bool = False,
        machine: Machine = DEFAULT_MACHINE,
        leader: Self | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """Choose the ports; with a leader, this is the second broker of its cluster.

        A node without data joins the cluster `cluster_id`, or becomes the first of a new one.
        """
        self.node: Final = open_node(folder)
        self._cluster_id: Final = cluster_id
        self._leader: Final = None if leader is None else leader.node
        profile = users.server_properties() if secured else {}
        if self._leader is not None:
            profile |= config.follower_properties(self.node.ports, self._leader.ports)
        self._properties: Final = {**profile, **(properties or {})}
        self._machine: Final = machine
        self._credentials: Final = users.client_properties(users.ADMIN) if secured else {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Return the address, which later runs keep."""
        return self.node.bootstrap_servers

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Return the librdkafka properties of a client that connects with all rights."""
        return {"bootstrap.servers": self.bootstrap_servers, **self._credentials}

    @property
    def log_path(self) -> Path:
        """Return the path of the log, which is kept across restarts."""
        return self.node.log_path

    @property
    def is_alive(self) -> bool:
        """Return whether its process exists, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def configure(self, properties: Mapping[str, str]) -> None:
        """Override properties, from the next start on."""
        self._properties.update(properties)

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers."""
        if self.is_alive:
            return
        self._process = _STARTER.submit(_launch, self._command(), self.node).result(timeout=60)
        try:
            self._expect_answer(self._process)
        except BaseException:  # Ctrl-C while waiting is one
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it gracefully, and kill it after a timeout."""
        if self._process is None:
            return
        if self.is_alive:
            self._process.send_signal(signal.SIGCONT)  # A frozen process handles no other signal.
            self._process.terminate()
            try:
                self._process.wait(timeout=STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """Kill it with SIGKILL, as a power cut would."""
        process = self._running("killed")
        process.kill()
        process.wait(timeout=STOP_TIMEOUT_S)

    def restart(self) -> None:
        """Start it again with the same data and ports, whether it runs, was stopped or killed."""
        self.stop()
        self.start()

    def suspend(self) -> None:
        """Freeze it: connections stay open, but nothing is answered once this returns."""
        process = self._running("suspended")
        process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        # The signal reaches one thread after another; the kernel reports when all have stopped.
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline:
                message = f"Process {process.pid} was not suspended within {STOP_TIMEOUT_S:.0f} s."
                raise BrokerError(message)
            time.sleep(_POLL_S)

    def resume(self) -> None:
        """Continue it after `suspend`."""
        self._running("resumed").send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        """Prepare the folder, and return the command that runs the broker on it."""
        cluster_id = self._cluster_id if self._leader is None else self._leader.cluster_id
        return prepare(self.node, self._properties, self._machine, cluster_id)

    def _expect_answer(self, process: subprocess.Popen[bytes]) -> None:
        if wait_until_ready(self.client_properties, lambda: self.is_alive):
            return
        status = process.poll()
        waited = f"did not answer within {START_TIMEOUT_S:.0f} s"
        ended = f"ended with status {status} before it answered"
        message = (
            f"The broker on {self.node.folder} {waited if status is None else ended}; look at its"
            f" log. {log_tail(self.node)}"
        )
        raise BrokerError(message)

    def _running(self, verb: str) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            message = (
                f"The broker on {self.node.folder} does not run, so it cannot be {verb}:"
                f" start it first. {log_tail(self.node)}"
            )
            raise BrokerError(message)
        return self._process


def _launch(command: list[str], node: Node) -> subprocess.Popen[bytes]:
    launch = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
    with node.log_path.open("ab") as log:
        return subprocess.Popen(
            [*launch, *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=node.folder,
            # Ctrl-C must not reach it: we stop the broker after the processes that need it.
            start_new_session=True,
        )
