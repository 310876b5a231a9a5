"""Components of the control plane: the arguments of each, all on the loopback address."""

from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
TOKEN: Final = "of-an-administrator"  # noqa: S105  # of a cluster that ends with its test


class Ports(NamedTuple):
    """The ports that the components listen on."""

    store: int
    store_peers: int
    api: int
    controllers: int
    scheduler: int
    nodes: int


class ClusterLayout(NamedTuple):
    """The files and ports by which the components find each other."""

    folder: Path
    ports: Ports

    @property
    def kubeconfig(self) -> Path:
        """Address of the API server, and credentials, for clients."""
        return self.folder / "kubeconfig"

    @property
    def key(self) -> Path:
        """The key that signs service account tokens."""
        return self.folder / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        """The tokens, users and groups that the API server accepts."""
        return self.folder / "tokens.csv"

    @property
    def stages(self) -> Path:
        """The configuration by which kwok simulates nodes, pods and volumes."""
        return self.folder / "stages.yaml"

    @property
    def api_url(self) -> str:
        """URL of the API server."""
        return f"https://{HOST}:{self.ports.api}"


def store(layout: ClusterLayout) -> list[str]:
    """Return the arguments of etcd."""
    clients = f"http://{HOST}:{layout.ports.store}"
    peers = f"http://{HOST}:{layout.ports.store_peers}"
    return [
        "etcd",
        *(f"--data-dir={layout.folder / 'etcd'}", "--log-level=error", "--unsafe-no-fsync"),
        *(f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"),
        *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
        f"--initial-cluster=default={peers}",
    ]


def api_server(layout: ClusterLayout) -> list[str]:
    """Return the arguments of the API server, with the default admission plugins."""
    return [
        "kube-apiserver",
        f"--etcd-servers=http://{HOST}:{layout.ports.store}",
        *(f"--bind-address={HOST}", f"--advertise-address={HOST}"),
        *(f"--secure-port={layout.ports.api}", f"--cert-dir={layout.folder / 'api'}"),
        # A loopback address cannot be an endpoint.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.key}",
        f"--service-account-signing-key-file={layout.key}",
        *(f"--token-auth-file={layout.tokens}", "--authorization-mode=RBAC"),
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controllers(layout: ClusterLayout) -> list[str]:
    """Return the arguments of the controller manager."""
    return [
        *("kube-controller-manager", f"--kubeconfig={layout.kubeconfig}", "--leader-elect=false"),
        *(f"--bind-address={HOST}", f"--secure-port={layout.ports.controllers}"),
        *(
            f"--cert-dir={layout.folder / 'controllers'}",
            f"--service-account-private-key-file={layout.key}",
        ),
        # No node is ever lost here, but on a busy machine a lease is renewed late.
        "--node-monitor-grace-period=1h",
    ]


def scheduler(layout: ClusterLayout) -> list[str]:
    """Return the arguments of the scheduler."""
    return [
        *("kube-scheduler", f"--kubeconfig={layout.kubeconfig}", "--leader-elect=false"),
        *(f"--bind-address={HOST}", f"--secure-port={layout.ports.scheduler}"),
        f"--cert-dir={layout.folder / 'scheduler'}",
    ]


def nodes(layout: ClusterLayout) -> list[str]:
    """Return the arguments of kwok, which replaces the kubelet of every node."""
    port = layout.ports.nodes
    return [
        *("kwok", f"--kubeconfig={layout.kubeconfig}", f"--config={layout.stages}"),
        # Without a node name of its own, a node that becomes ready again loses its address
        # (kwok 0.8.0).
        *("--manage-all-nodes", f"--node-name={HOST}"),
        *(f"--node-ip={HOST}", f"--node-port={port}"),
        f"--server-address={HOST}:{port}",
    ]
