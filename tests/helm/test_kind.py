"""deploy/kind: Kubernetes takes its objects, and the chart's values name what they make."""

from pathlib import Path
from typing import Any, Final

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest
import yaml

from ringfence_service.config.load import load
from tests.helm.chart import (
    HELM_TEST,
    Helm,
    Object,
    config_toml,
    container,
    kubernetes_versions,
    only,
)
from tests.support.kafka_image import (
    DEPLOY,
    advertised,
    compose,
    environments,
    kind_container,
    kind_objects,
)

pytestmark = HELM_TEST

VALUES: Final = DEPLOY / "kind" / "values.yaml"


@pytest.fixture(scope="module")
def objects(helm: Helm) -> list[Object]:
    return helm.render(VALUES)


@pytest.mark.parametrize("kubernetes", kubernetes_versions())
def test_every_object_fits_the_strict_schema(objects: list[Object], kubernetes: str) -> None:
    for found in [*kind_objects(), *objects]:
        kubernetes_validate.validate(found, kubernetes, strict=True)


def test_ringfence_finds_the_broker_under_the_name_of_its_service(
    objects: list[Object], tmp_path: Path
) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text(config_toml(objects), "utf-8")
    config = load(file, {})
    service = only(kind_objects(), "Service")
    (port,) = service["spec"]["ports"]
    server = f"{service['metadata']['name']}:{port['port']}"
    assert config.kafka.common["bootstrap.servers"] == server
    assert advertised(environments()["kind"]) == {server}
    (listened,) = kind_container()["ports"]
    assert (listened["name"], listened["containerPort"]) == (port["targetPort"], port["port"])


def test_the_decisions_are_those_of_compose(objects: list[Object], tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text(config_toml(objects), "utf-8")
    ours, theirs = load(file, {}), load(DEPLOY / "ringfence.toml", {})
    assert (ours.routes, ours.addresses) == (theirs.routes, theirs.addresses)
    assert ours.service.create_topics == theirs.service.create_topics is True


def test_the_service_selects_the_pod_whose_environment_is_its_own() -> None:
    service, pods = only(kind_objects(), "Service"), only(kind_objects(), "StatefulSet")
    template = pods["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert pods["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert pods["spec"]["serviceName"] == service["metadata"]["name"]
    # Kubernetes would set KAFKA_PORT, which the image takes for the property `port`.
    assert template["spec"]["enableServiceLinks"] is False


def test_the_broker_writes_into_its_volume() -> None:
    pods = only(kind_objects(), "StatefulSet")["spec"]
    (claim,) = pods["volumeClaimTemplates"]
    (mount,) = kind_container()["volumeMounts"]
    assert mount["name"] == claim["metadata"]["name"]
    assert environments()["kind"]["KAFKA_LOG_DIRS"].startswith(mount["mountPath"])
    (volume,) = (one for one in compose()["kafka"]["volumes"])
    assert volume.endswith(f":{mount['mountPath']}")
    security: dict[str, Any] = pods["template"]["spec"]["securityContext"]
    assert security["fsGroup"] == security["runAsGroup"]


def test_the_image_is_pulled_from_nowhere(helm: Helm, objects: list[Object]) -> None:
    found = container(objects)
    chart = yaml.safe_load(helm.run("show", "chart", str(DEPLOY / "helm" / "ringfence")))
    assert found["imagePullPolicy"] == "Never"
    assert found["image"] == f"registry.example.com/ringfence:{chart['appVersion']}"
