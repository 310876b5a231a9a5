"""Gives the chart's tests a real Helm, promtool, Kubernetes and Kafka, or says why not."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helm.box import why_none
from tests.helm.chart import Helm
from tools.broker.cluster import Broker, open_broker
from tools.broker.config import free_port
from tools.go import GoMissingError, GoProgram
from tools.helm.build import HELM
from tools.kubernetes.build import KUBERNETES
from tools.kubernetes.control_plane import Kubernetes, control_plane
from tools.kubernetes.documents import Pods
from tools.promtool.build import PROMTOOL


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count what needs Kubernetes among the long tests: to build it takes minutes on all cores."""
    for item in items:
        if "kubernetes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)


def built(program: GoProgram) -> Path:
    try:
        return program.binary()
    except GoMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(built(HELM), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def promtool() -> Path:
    return built(PROMTOOL)


@pytest.fixture(scope="session")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Pods:
    """What stands for the inside of every pod: a folder with the programs that it has."""
    folder = tmp_path_factory.mktemp("pods")
    return Pods(folder, {"PATH": f"{folder}:{os.defpath}"}, free_port(0))


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory, pods: Pods) -> Iterator[Kubernetes]:
    built(KUBERNETES)
    if shutil.which("go") is None:
        pytest.skip("what kwok is to do lies in its Go module, and there is no `go` on PATH")
    with control_plane(tmp_path_factory.mktemp("kubernetes"), pods) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def boxes() -> None:
    """Where a pod can run as a process."""
    if (why := why_none()) is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # With users where the broker is ours, so that the Secret's way is walked too.
    ours = not (os.environ.get("KAFKA_BOOTSTRAP_SERVERS") or os.environ.get("RINGFENCE_BROKER"))
    folder = tmp_path_factory.mktemp("broker")
    with open_broker(folder, secured=ours, heap_mb=512, short_lived=True) as broker:
        yield broker


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line that is seen though the test passes: what was measured, not judged."""

    def tell(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}")

    return tell
