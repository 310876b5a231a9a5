"""What the parts read: credentials, what kwok is to do, and the nodes that there are."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tools.kubernetes.parts import HOST, TOKEN, Place
from tools.kubernetes.published import STAGES, STORAGE_CLASS

_NODES: Final = 3


class Pods(NamedTuple):
    """What stands for the inside of every pod."""

    folder: Path
    variables: Mapping[str, str]
    port: int
    """Where what is forwarded to any port of a pod arrives."""


def write(place: Place, pods: Pods | None) -> None:
    """Write what the parts are started with: keys, credentials, and what kwok is to do."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    place.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    place.tokens.write_text(f'{TOKEN},administrator,1,"system:masters"\n')
    cluster = {"server": place.api_url, "insecure-skip-tls-verify": True}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "administrator", "user": {"token": TOKEN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "administrator"}}],
    }
    place.kubeconfig.write_text(json.dumps(kubeconfig))
    place.kubeconfig.chmod(0o600)
    inside = [] if pods is None else [_executed(pods), _forwarded(pods)]
    texts = [*STAGES.texts(), *(yaml.safe_dump(each) for each in inside)]
    place.stages.write_text("\n---\n".join(texts))


def _executed(pods: Pods) -> dict[str, object]:
    variables = [{"name": name, "value": value} for name, value in pods.variables.items()]
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterExec",
        "metadata": {"name": "here"},
        "spec": {"execs": [{"local": {"workDir": str(pods.folder), "envs": variables}}]},
    }


def _forwarded(pods: Pods) -> dict[str, object]:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterPortForward",
        "metadata": {"name": "here"},
        "spec": {"forwards": [{"target": {"address": HOST, "port": pods.port}}]},
    }


def nodes_and_storage() -> str:
    """What a cluster has before anybody installs anything: nodes in zones, and volumes."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    "kubernetes.io/hostname": f"node-{number}",
                    "topology.kubernetes.io/zone": f"zone-{number}",
                },
            },
        }
        for number in range(_NODES)
    ]
    return "\n---\n".join([*STORAGE_CLASS.texts(), *(yaml.safe_dump(node) for node in nodes)])
