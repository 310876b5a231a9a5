"""The rendered container runs: its command, environment and mounts start the real service.

A pod in all but name: each mount is a folder and the environment holds what pod 0 would get.
Changed beside that: the port of the API, because this machine may have another 8080.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.helm.chart import MINIMAL, Helm, Object, config_toml, container, environment
from tools.broker.cluster import Broker, open_broker

pytestmark = [pytest.mark.helm, pytest.mark.broker, pytest.mark.timeout(1800)]

READY_WITHIN_S = 60.0
LEFT_WITHIN_S = 20.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # With users where the broker is ours, so that the Secret's way is walked too.
    ours = not (os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or os.environ.get("RINGFENCE_BROKER"))
    with open_broker(tmp_path_factory.mktemp("broker"), secured=ours, heap_mb=512) as broker:
        yield broker


def create_topics(broker: Broker, *names: str) -> None:
    admin = AdminClient(dict(broker.client_properties))
    topics = [NewTopic(name, num_partitions=2, replication_factor=1) for name in names]
    for created in admin.create_topics(topics, request_timeout=30.0).values():
        created.result(timeout=30.0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def mounted(objects: list[Object], root: Path) -> dict[str, Path]:
    """Make a folder for each mount of the container, named by the path it has there."""
    folders = {
        mount["mountPath"]: root / mount["name"] for mount in container(objects)["volumeMounts"]
    }
    for folder in folders.values():
        folder.mkdir()
    text = with_folders(config_toml(objects), folders)
    (folders["/etc/ringfence"] / "ringfence.toml").write_text(text)
    return folders


def with_folders(text: str, folders: dict[str, Path]) -> str:
    """Replace each path of the container by the folder that stands for it here."""
    paths = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    return re.sub(rf'({paths})(?=[/"]|$)', lambda found: str(folders[found[1]]), text)


def status_of(url: str) -> int:
    """Return the status of an answer, 0 when there is none."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:  # noqa: S310  # loopback only
            return int(answer.status)
    except urllib.error.HTTPError as answer:
        return answer.code
    except OSError:
        return 0


def wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while status_of(f"http://127.0.0.1:{port}/readyz") != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"not ready, exit code {process.returncode}: {log.read_text()[-4000:]}")
        time.sleep(0.1)


def test_the_rendered_container_gets_ready_and_leaves_at_sigterm(
    helm: Helm, kafka: Broker, tmp_path: Path
) -> None:
    topic = f"helm-{time.time_ns()}"
    create_topics(kafka, topic, f"{topic}.unique", f"{topic}.dlq")
    properties = dict(kafka.client_properties)
    password = properties.pop("sasl.password", None)
    routes = [{"inputs": [topic], "scope": "partition"}]
    service = {"group_id": topic}
    values: dict[str, object] = {
        "config": {"kafka": properties, "service": service, "routes": routes},
        "kafka": {"sasl": {"existingSecret": "credentials" if password else ""}},
    }
    objects = helm.render(MINIMAL, values)
    folders = mounted(objects, tmp_path)
    one, port = container(objects), free_port()
    secrets = {("credentials", "password"): password or ""}
    variables = environment(objects, secrets=secrets) | {
        "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
        "TMPDIR": str(folders["/tmp"]),  # noqa: S108  # the mount's name in the container
        "RINGFENCE_API__PORT": str(port),
    }
    command = [with_folders(word, folders) for word in [*one["command"], *one["args"]]]
    program = shutil.which(command[0], path=variables["PATH"])
    assert program, f"{command[0]} is not beside {sys.executable}: pip install --editable ."
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *command[1:]],
            env=variables,
            cwd=tmp_path,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_ready(process, port, log)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = one[probe]["httpGet"]["path"]
            assert status_of(f"http://127.0.0.1:{port}{path}") == 200
        assert any(folders["/var/lib/ringfence"].iterdir()), "the state lies on the volume"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LEFT_WITHIN_S) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait(LEFT_WITHIN_S)
