"""Kafka's own image, apache/kafka, as the files in deploy/ use it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


def compose() -> dict[str, Any]:
    """Return the services of deploy/compose.yaml."""
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    services: dict[str, Any] = document["services"]
    return services


def kind_objects() -> list[dict[str, Any]]:
    """Return the objects of deploy/kind/kafka.yaml."""
    return list(yaml.safe_load_all((DEPLOY / "kind" / "kafka.yaml").read_text("utf-8")))


def kind_container() -> dict[str, Any]:
    """Return the only container of the broker's pod."""
    (found,) = (each for each in kind_objects() if each["kind"] == "StatefulSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return dict(container)


def environments() -> dict[str, dict[str, str]]:
    """Return what each of the two files gives to the image."""
    of_kind = {each["name"]: each["value"] for each in kind_container()["env"]}
    return {"compose": compose()["kafka"]["environment"], "kind": of_kind}


def properties_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the server properties that the image makes of its environment.

    It drops the prefix, and reads ___ as -, __ as _ and _ as a dot. With any of these variables it
    ignores the file that it has by default, so they have to be all that Kafka needs.
    """
    properties = {}
    for variable, value in environment.items():
        assert isinstance(value, str), variable
        assert variable.startswith("KAFKA_"), variable
        name = variable.removeprefix("KAFKA_").lower()
        name = name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
        properties[name] = value
    return properties


def advertised(environment: Mapping[str, str]) -> set[str]:
    """Return the addresses, as host:port, by which clients find the broker."""
    listeners = environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
    return {listener.partition("://")[2] for listener in listeners}
