"""The parts of the control plane: with which arguments each is started, all of them on loopback."""

from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
TOKEN: Final = "of-an-administrator"  # noqa: S105  # of a cluster that ends with its test


class Ports(NamedTuple):
    """Where the parts listen."""

    store: int
    store_peers: int
    api: int
    controllers: int
    scheduler: int
    nodes: int


class Place(NamedTuple):
    """What the parts need to find each other."""

    folder: Path
    ports: Ports

    @property
    def kubeconfig(self) -> Path:
        """How a client finds the API server and says who it is."""
        return self.folder / "kubeconfig"

    @property
    def key(self) -> Path:
        """What signs the tokens of service accounts."""
        return self.folder / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        """Who may do what at the API server."""
        return self.folder / "tokens.csv"

    @property
    def stages(self) -> Path:
        """What kwok makes of nodes, pods and volumes."""
        return self.folder / "stages.yaml"

    @property
    def api_url(self) -> str:
        """Where the API server answers."""
        return f"https://{HOST}:{self.ports.api}"


def store(place: Place) -> list[str]:
    """The arguments of etcd."""
    clients = f"http://{HOST}:{place.ports.store}"
    peers = f"http://{HOST}:{place.ports.store_peers}"
    return [
        "etcd",
        *(f"--data-dir={place.folder / 'etcd'}", "--log-level=error", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
        *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
        f"--initial-cluster=default={peers}",
    ]


def api_server(place: Place) -> list[str]:
    """The arguments of the API server; its admission is what Kubernetes has by default."""
    return [
        "kube-apiserver",
        f"--etcd-servers=http://{HOST}:{place.ports.store}",
        *(f"--bind-address={HOST}", f"--advertise-address={HOST}"),
        *(f"--secure-port={place.ports.api}", f"--cert-dir={place.folder / 'api'}"),
        # An address on loopback can be nobody's endpoint.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={place.key}",
        f"--service-account-signing-key-file={place.key}",
        *(f"--token-auth-file={place.tokens}", "--authorization-mode=RBAC"),
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controllers(place: Place) -> list[str]:
    """The arguments of the controller manager."""
    return [
        *("kube-controller-manager", f"--kubeconfig={place.kubeconfig}", "--leader-elect=false"),
        *(f"--bind-address={HOST}", f"--secure-port={place.ports.controllers}"),
        *(
            f"--cert-dir={place.folder / 'controllers'}",
            f"--service-account-private-key-file={place.key}",
        ),
        # Nobody loses a node here; on a busy machine a lease is renewed late.
        "--node-monitor-grace-period=1h",
    ]


def scheduler(place: Place) -> list[str]:
    """The arguments of the scheduler."""
    return [
        *("kube-scheduler", f"--kubeconfig={place.kubeconfig}", "--leader-elect=false"),
        *(f"--bind-address={HOST}", f"--secure-port={place.ports.scheduler}"),
        f"--cert-dir={place.folder / 'scheduler'}",
    ]


def nodes(place: Place) -> list[str]:
    """The arguments of kwok: it answers for the kubelet of every node."""
    port = place.ports.nodes
    return [
        *("kwok", f"--kubeconfig={place.kubeconfig}", f"--config={place.stages}"),
        # A node that gets ready again without a name of its own loses its address (kwok 0.8.0).
        *("--manage-all-nodes", f"--node-name={HOST}"),
        *(f"--node-ip={HOST}", f"--node-port={port}"),
        f"--server-address={HOST}:{port}",
    ]
