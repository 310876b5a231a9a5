"""From `helm install` to the first duplicate kept out, by the documented commands and no others.

The cluster is a real API server whose pods are only objects; pod 0 runs beside it as a process on a
real broker, built from those objects, and `kubectl exec` runs commands in it.
"""

import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.helm.chart import CHART_DIR, Helm
from tests.helm.inside import Inside
from tests.helm.live import Shell, new_namespace, new_shell
from tests.support.pages import block
from tests.support.waiting import LIMIT_S, eventually
from tools.broker.cluster import Broker, open_broker
from tools.kubernetes.control_plane import Kubernetes
from tools.kubernetes.documents import Pods

pytestmark = [pytest.mark.helm, pytest.mark.broker, pytest.mark.timeout(1800)]

README = (CHART_DIR / "README.md").read_text("utf-8")


class Installed(NamedTuple):
    """What stands after the commands of the README."""

    shell: Shell
    notes: str

    def told(self, word: str) -> str:
        """The command of the notes that has a word."""
        lines = re.findall(r"^ +(kubectl .*)$", self.notes, re.MULTILINE)
        (command,) = [line for line in lines if word in line]
        return str(command)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with open_broker(tmp_path_factory.mktemp("broker"), heap_mb=512, short_lived=True) as found:
        yield found


@pytest.fixture(scope="module")
def shell(kubernetes: Kubernetes, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    namespace = new_namespace(kubernetes, helm, "first-duplicate")
    return new_shell(kubernetes, helm, tmp_path_factory.mktemp("shell"), namespace.name)


@pytest.fixture(scope="module")
def installed(
    shell: Shell, pods: Pods, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installed]:
    topic = f"orders-{time.time_ns()}"
    admin = AdminClient(dict(broker.client_properties))
    for created in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        created.result(30)
    values = yaml.safe_load(block(README, "yaml", "bootstrap.servers"))
    values["config"]["kafka"] = dict(broker.client_properties)
    values["config"]["routes"] = [{"inputs": [topic]}]
    values["config"]["service"] = {"group_id": topic, "create_topics": True}
    (shell.folder / "my-values.yaml").write_text(yaml.safe_dump(values))
    shell.type(block(README, "sh", "ringfence token"))
    notes = shell.type(block(README, "sh", "helm install")).partition("NOTES:")[2]
    kinds = "statefulset,configmap,secret"
    objects = yaml.safe_load(shell.type(f"kubectl get {kinds} --output=yaml"))["items"]
    inside = Inside.of(objects, tmp_path_factory.mktemp("mounts"), pods.port)
    inside.open_to(pods.folder)
    log = shell.folder / "pod.log"
    process = inside.start(log)
    try:
        eventually(lambda: answer(pods.port, "/readyz") == 200)
        yield Installed(shell, notes)
        process.terminate()
        assert process.wait(LIMIT_S) == 0, log.read_text()[-4000:]
    finally:
        process.kill()
        process.wait(LIMIT_S)


def answer(port: int, path: str, **headers: str) -> int:
    """The status of an answer, 0 when there is none."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as found:  # noqa: S310 - our own
            return int(found.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError:
        return 0


def test_only_who_has_the_token_of_the_readme_uses_the_api(
    installed: Installed, pods: Pods
) -> None:
    token = (installed.shell.folder / "ada.token").read_text().strip()
    assert answer(pods.port, "/v1/info") == 401
    assert answer(pods.port, "/v1/info", Authorization=f"Bearer {token}") == 200


def test_the_commands_of_the_notes_lead_to_the_first_duplicate_kept_out(
    installed: Installed,
) -> None:
    rolled_out = installed.shell.type(installed.told("rollout status"))
    assert "roll out complete" in rolled_out or "rolling update complete" in rolled_out
    checked = installed.shell.type(installed.told("ringfence check"))
    assert "ringfence.toml is good." in checked or "ringfence.toml can be used" in checked
    tried = installed.shell.type(installed.told("ringfence try"))
    assert "One came out, and its copy was kept out." in tried


def test_the_command_of_the_notes_leads_to_where_one_signs_in(installed: Installed) -> None:
    if not is_free(8080):
        pytest.skip("port 8080 of this machine is taken, and the command names it")
    command = installed.told("port-forward")
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        cwd=installed.shell.folder,
        env=installed.shell.variables,
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: answer(8080, "/livez") == 200)
        asked = urllib.request.Request("http://127.0.0.1:8080/", headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked, timeout=LIMIT_S) as page:  # noqa: S310 - our own
            assert "<title>Sign in · Ringfence</title>" in page.read().decode()
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
