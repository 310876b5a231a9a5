"""Files and objects that a cluster starts with: credentials, kwok's configuration, nodes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tools.kubernetes.parts import HOST, TOKEN, ClusterLayout
from tools.kubernetes.published import STAGES, STORAGE_CLASS

_NODES: Final = 3


class Pods(NamedTuple):
    """The local process environment that replaces the inside of every pod."""

    folder: Path
    variables: Mapping[str, str]
    port: int
    """The local port that receives what is forwarded to any port of a pod."""


def write(layout: ClusterLayout, pods: Pods | None) -> None:
    """Write the files that the components start with: keys, credentials, kwok's configuration."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    layout.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    layout.tokens.write_text(f'{TOKEN},administrator,1,"system:masters"\n')
    cluster = {"server": layout.api_url, "insecure-skip-tls-verify": True}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": cluster}],
        "users": [{"name": "administrator", "user": {"token": TOKEN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "administrator"}}],
    }
    layout.kubeconfig.write_text(json.dumps(kubeconfig))
    layout.kubeconfig.chmod(0o600)
    inside = [] if pods is None else [_executed(pods), _forwarded(pods)]
    texts = [*STAGES.texts(), *(yaml.safe_dump(each) for each in inside)]
    layout.stages.write_text("\n---\n".join(texts))


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
    """Return the objects of an empty cluster as YAML: nodes in zones, and a storage class."""
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
