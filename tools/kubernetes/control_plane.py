"""A control plane that lives as long as its context: started in order, on loopback, ended for good.

Nodes, pods and volumes are kwok's: the API server has them, they are ready at once, nothing runs.
What is run in a pod by `kubectl exec` runs on this machine, in the folder and with the variables of
`Pods`; what is forwarded to a pod's port goes to a port of this machine.
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
from tools.kubernetes.parts import HOST, Place, Ports

READY_WITHIN_S: Final = 300.0
_LAUNCH: Final = Path(__file__).parents[1] / "broker" / "launch.py"


class Kubernetes(NamedTuple):
    """A cluster that answers."""

    program: Path
    place: Place
    processes: dict[str, "subprocess.Popen[bytes]"]

    @property
    def kubeconfig(self) -> Path:
        """For clients."""
        return self.place.kubeconfig

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """Return what kubectl prints; ToolError with what it says when it fails."""
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
    """Start one in an empty folder."""
    program = KUBERNETES.binary()
    place = Place(folder, Ports(*_free_ports(len(Ports._fields))))
    write(place, pods)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    cluster = Kubernetes(program, place, processes)
    with ExitStack() as ending:
        for part in (parts.store, parts.api_server):
            _start(cluster, part(place), ending)
        _wait_until_it_answers(cluster)
        for part in (parts.controllers, parts.scheduler):
            _start(cluster, part(place), ending)
        # It looks for the programs of a pod by its own PATH.
        _start(cluster, parts.nodes(place), ending, {} if pods is None else pods.variables)
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
    with (cluster.place.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            # None outlives the test, whatever becomes of that.
            [
                sys.executable,
                str(_LAUNCH),
                "attached",
                str(os.getpid()),
                cluster.program,
                *arguments,
            ],
            cwd=cluster.place.folder,
            env={**os.environ, **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    cluster.processes[name] = process
    ending.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """At once: whatever it would save goes with the folder; a polite API server takes a minute."""
    process.kill()
    process.wait(30)


def _wait_until_it_answers(cluster: Kubernetes) -> None:
    deadline_s = time.monotonic() + READY_WITHIN_S
    while True:
        _see_that_all_live(cluster)
        try:
            # The default namespace comes last.
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
        _see_that_all_live(cluster)
        raise ToolError(f"no node gets ready: {error}{_tail(cluster)}") from error


def _see_that_all_live(cluster: Kubernetes) -> None:
    for name, process in cluster.processes.items():
        if process.poll() is not None:
            raise ToolError(f"{name} ended with {process.returncode}{_tail(cluster, name)}")


def _tail(cluster: Kubernetes, *names: str) -> str:
    logs = [cluster.place.folder / f"{name}.log" for name in names or cluster.processes]
    ends = [f"\n{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs]
    return "".join(ends)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
