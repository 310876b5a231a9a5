"""Wrong values are refused before anything is installed, and the refusal names the key."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART_DIR, HELM_TEST, MINIMAL, Helm, RefusedError

pytestmark = HELM_TEST


def nested(path: str, value: object) -> dict[str, Any]:
    """Return the values that set one key, given as /a/b/c."""
    tree: Any = value
    for name in reversed(path.strip("/").split("/")):
        tree = {name: tree}
    return dict(tree)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/replicas", "three"),
        ("/replicas", -1),
        ("/replicas", 1.5),
        ("/image/digest", "sha256:short"),
        ("/image/repository", ""),
        ("/config/kafka/bootstrap.servers", 9092),
        ("/config/kafka/fetch.max.bytes", [1]),
        ("/config/kafka/sasl.password", "secret"),
        ("/config/kafka/consumer/sasl.password", "secret"),
        ("/config/kafka/producer/ssl.key.password", "secret"),
        ("/config/service/group_id", ""),
        ("/config/service/batch_records_max", "many"),
        ("/config/service/transaction_timeout_ms", 0),
        ("/config/service/internal_replication", 0),
        ("/config/service/create_topics", "yes"),
        ("/config/service/on_lost_offset", "skip"),
        ("/config/addresses/flights.#/id_cache_size", -1),
        ("/config/addresses/flights.#/strategy", "bloom"),
        ("/config/routes", "orders"),
        ("/kafka/sasl/passwordKey", ""),
        ("/persistence/size", "10"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, path: str, value: object) -> None:
    with pytest.raises(RefusedError, match=f"at '{path}'"):
        helm.render(values=nested(path, value))


@pytest.mark.parametrize(
    "path",
    [
        "/replica",
        "/image/name",
        "/config/bridge",
        "/config/service/grup_id",
        "/config/addresses/orders/cache_size",
        "/kafka/password",
        "/kafka/sasl/password",
        "/kafka/tls/ca",
        "/persistence/storageClass",
        "/resources/request",
    ],
)
def test_an_unknown_key_is_refused_by_name(helm: Helm, path: str) -> None:
    parent, _, name = path.rpartition("/")
    refusal = f"at '{parent}': additional properties '{name}' not allowed"
    with pytest.raises(RefusedError, match=refusal):
        helm.render(values=nested(path, "x"))


def test_a_route_with_a_misspelt_key_is_refused_with_its_number(helm: Helm) -> None:
    routes = [{"inputs": [name], "scope": "partition"} for name in "ab"]
    routes[1]["outputs"] = "c"
    refusal = "at '/config/routes/1': additional properties 'outputs' not allowed"
    with pytest.raises(RefusedError, match=refusal):
        helm.render(values={"config": {"routes": routes}})


@pytest.mark.parametrize("name", ["state_dir", "instance"])
def test_what_the_pod_decides_cannot_be_set(helm: Helm, name: str) -> None:
    with pytest.raises(RefusedError, match=f"'{name}' not allowed"):
        helm.render(values={"config": {"service": {name: "7"}}})


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"kafka": {"bootstrap.servers": ""}}, "config.kafka needs bootstrap.servers"),
        ({"routes": []}, "give at least one route"),
    ],
)
def test_a_missing_need_is_told_in_a_sentence(
    helm: Helm, config: dict[str, object], sentence: str
) -> None:
    with pytest.raises(RefusedError, match=sentence):
        helm.render(MINIMAL, {"config": config})


def test_the_readme_explains_every_value() -> None:
    def paths(tree: dict[str, object], prefix: str = "") -> Iterator[str]:
        for name, value in tree.items():
            if isinstance(value, dict) and name not in {"requests", "limits", "addresses"}:
                yield from paths(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    values = yaml.safe_load((CHART_DIR / "values.yaml").read_text())
    readme = (CHART_DIR / "README.md").read_text()
    assert [path for path in paths(values) if f"`{path}`" not in readme] == []
