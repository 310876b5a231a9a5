"""docs/install.md: its commands for kind are typed, unchanged, on a real API server.

The pods have no processes, so the words of a command that runs in one are compared.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.helm.chart import HELM_TEST, Helm
from tests.helm.live import Namespace, Shell, new_shell
from tests.support.kafka_image import DEPLOY
from tests.support.pages import block
from tools.kubernetes.control_plane import Kubernetes

pytestmark = HELM_TEST

PAGE: Final = (DEPLOY.parent / "docs" / "install.md").read_text("utf-8")
VALUES: Final = yaml.safe_load((DEPLOY / "kind" / "values.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def shell(
    kubernetes: Kubernetes, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    yield new_shell(kubernetes, helm, tmp_path_factory.mktemp("page"), "default")
    kubernetes.kubectl("delete", "namespace", "trial", "--ignore-not-found", "--wait=false")


def test_the_commands_for_kind_install_kafka_and_ringfence(
    shell: Shell, kubernetes: Kubernetes, helm: Helm
) -> None:
    trial = Namespace("trial", kubernetes, helm)
    assert "roll" in shell.type(block(PAGE, "sh", "kubectl create namespace"))
    assert trial.names("pvc") == ["data-kafka-0"]
    (ours,) = [each for each in block(PAGE, "sh", "--values deploy").splitlines() if each]
    assert "STATUS: deployed" in shell.type(ours)
    assert sorted(trial.names("pod")) == ["kafka-0", "ringfence-0"]


def test_the_topic_of_the_command_is_the_input_and_its_broker_that_of_the_values() -> None:
    words = shlex.split(block(PAGE, "sh", "kafka-topics.sh"))
    assert "kafka-0" in words
    options = dict(itertools.pairwise(words))
    config = VALUES["config"]
    assert options["--bootstrap-server"] == config["kafka"]["bootstrap.servers"]
    assert config["routes"] == [{"inputs": [options["--topic"]]}]


def test_the_image_that_is_loaded_is_that_of_the_values(helm: Helm) -> None:
    chart = yaml.safe_load(helm.run("show", "chart", str(DEPLOY / "helm" / "ringfence")))
    image = f"{VALUES['image']['repository']}:{chart['appVersion']}"
    commands = block(PAGE, "sh", "kind load")
    assert re.findall(r"(?:--tag|docker-image) (\S+)", commands) == [image, image]


def test_the_files_that_the_page_names_are_there() -> None:
    names = set(re.findall(r"deploy/[\w./-]*\w", PAGE))
    assert len(names) > 4
    assert [name for name in names if not Path(DEPLOY.parent, name).exists()] == []
