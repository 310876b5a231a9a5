"""Control plane on loopback ports, started in order, that lives as long as its context.

kwok simulates nodes, pods and volumes: they exist in the API server and are ready at once, but
nothing runs. `kubectl exec` runs commands on this machine, in the folder and with the variables
of `Pods`; port forwarding to a pod goes to a port of this machine.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tools.errors import ToolError
from tools.kubernetes import parts
from tools.kubernetes.build import KUBERNETES
from tools.kubernetes.documents import Pods, nodes_and_storage, write
from tools.kubernetes.parts import HOST, ClusterLayout, Ports

READY_WITHIN_S: Final = 300.0
_LAUNCH: Final = Path(__file__).parents[1] / "broker" / "launch.py"


class Kubernetes(NamedTuple):
    """A running cluster."""

    program: Path
    layout: ClusterLayout
    processes: dict[str, "subprocess.Popen[bytes]"]

    @property
    def kubeconfig(self) -> Path:
        """Path of the configuration for clients."""
        return self.layout.kubeconfig

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Run kubectl with `given` on its stdin; return its output, or raise ToolError."""
        command = [str(self.program), "kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=READY_WITHIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise ToolError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


@contextmanager
def control_plane(folder: Path, pods: Pods | None = None) -> Iterator[Kubernetes]:
    """Start a cluster in an empty folder; it is killed when the block ends."""
    program = KUBERNETES.binary()
    layout = ClusterLayout(folder, Ports(*_free_ports(len(Ports._fields))))
    write(layout, pods)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    cluster = Kubernetes(program, layout, processes)
    with ExitStack() as ending:
        for part in (parts.store, parts.api_server):
            _start(cluster, part(layout), ending)
        _wait_until_it_answers(cluster)
        for part in (parts.controllers, parts.scheduler):
            _start(cluster, part(layout), ending)
        # kwok looks for the programs of a pod on its own PATH.
        _start(cluster, parts.nodes(layout), ending, {} if pods is None else pods.variables)
        cluster.kubectl("apply", "--filename", "-", given=nodes_and_storage())
        _wait_for_nodes(cluster)
        yield cluster


def _start(
    cluster: Kubernetes,
    arguments: Sequence[str],
    ending: ExitStack,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    name = arguments[0]
    with (cluster.layout.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            # No process outlives the test, however that ends.
            [
                sys.executable,
                str(_LAUNCH),
                "attached",
                str(os.getpid()),
                cluster.program,
                *arguments,
            ],
            cwd=cluster.layout.folder,
            env={**os.environ, **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    cluster.processes[name] = process
    ending.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process: its data is deleted with the folder, and a graceful stop takes a minute."""
    process.kill()
    process.wait(30)


def _wait_until_it_answers(cluster: Kubernetes) -> None:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while True:
        _check_alive(cluster)
        try:
            # The default namespace is created last.
            cluster.kubectl("get", "--raw", "/readyz")
            cluster.kubectl("get", "namespace", "default")
        except ToolError as error:
            if time.monotonic() > deadline_s:
                raise ToolError(f"the API server is not ready: {error}{_tail(cluster)}") from error
            time.sleep(0.2)
        else:
            return


def _wait_for_nodes(cluster: Kubernetes) -> None:
    try:
        cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=240s")
    except ToolError as error:
        _check_alive(cluster)
        raise ToolError(f"no node became ready: {error}{_tail(cluster)}") from error


def _check_alive(cluster: Kubernetes) -> None:
    for name, process in cluster.processes.items():
        if process.poll() is not None:
            raise ToolError(f"{name} ended with {process.returncode}{_tail(cluster, name)}")


def _tail(cluster: Kubernetes, *names: str) -> str:
    logs = [cluster.layout.folder / f"{name}.log" for name in names or cluster.processes]
    ends = [f"\n{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs]
    return "".join(ends)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
