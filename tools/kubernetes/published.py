"""Published Kubernetes manifests that the tests use unchanged, pinned by version and digest."""

from typing import Final

from tools.go import GoFiles

_STAGES: Final = "kustomize/stage"
_MONITORING: Final = "example/prometheus-operator-crd/monitoring.coreos.com"

STAGES: Final = GoFiles(
    "sigs.k8s.io/kwok",
    "v0.8.0",
    "h1:OTIOTwgROqPMovcTwxICx2eYQ4AwLpSx5EpjbDKF4SQ=",
    (
        f"{_STAGES}/node/fast/node-initialize.yaml",
        f"{_STAGES}/pod/fast/pod-ready.yaml",
        f"{_STAGES}/pod/fast/pod-delete.yaml",
        f"{_STAGES}/volume/fast/pv-bind.yaml",
        f"{_STAGES}/volume/fast/pv-delete.yaml",
        f"{_STAGES}/volume/fast/pvc-provision.yaml",
        f"{_STAGES}/volume/fast/pvc-delete.yaml",
    ),
)
"""How kwok simulates nodes, pods and volumes: all become ready at once."""

STORAGE_CLASS: Final = STAGES._replace(paths=(f"{_STAGES}/volume/fast/storage-class.yaml",))

DEFINITIONS: Final = (
    GoFiles(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        (
            f"{_MONITORING}_podmonitors.yaml",
            f"{_MONITORING}_servicemonitors.yaml",
            f"{_MONITORING}_prometheusrules.yaml",
        ),
    ),
    GoFiles(
        "github.com/kedacore/keda/v2",
        "v2.21.0",
        "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        (
            "config/crd/bases/keda.sh_scaledobjects.yaml",
            "config/crd/bases/keda.sh_triggerauthentications.yaml",
        ),
    ),
    GoFiles(
        "sigs.k8s.io/gateway-api",
        "v1.5.0",
        "h1:duoo14Ky/fJXpjpmyMISE2RTBGnfCg8zICfTYLTnBJA=",
        ("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
    ),
)
"""Custom resource definitions of the kinds that the chart creates and Kubernetes lacks."""
