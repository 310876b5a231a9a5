"""deploy/compose.yaml agrees with the image, the configuration and the broker that it names."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from ringfence_service.config.load import load
from ringfence_service.config.model import Config
from tests.support.kafka_image import DEPLOY, advertised, compose, environments
from tools.broker.artifacts import KAFKA_VERSION
from tools.image.dockerfile import instructions

COMPOSE: Final = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
SERVICES: Final = compose()
RINGFENCE: Final = SERVICES["ringfence"]
KAFKA: Final = SERVICES["kafka"]
DOCKERFILE: Final = instructions(DEPLOY.parent / "Dockerfile")
CONFIG: Final = "/etc/ringfence/ringfence.toml"
STATE: Final = "/var/lib/ringfence"


@pytest.fixture(scope="module")
def config() -> Config:
    return load(DEPLOY / "ringfence.toml", {})


def last(word: str) -> str:
    """What an instruction of the Dockerfile says, the last time it is there for the service."""
    until = DOCKERFILE.index(next(line for line in DOCKERFILE if " AS spark-build" in line))
    found = [line for line in DOCKERFILE[:until] if line.startswith(f"{word} ")]
    return found[-1].removeprefix(f"{word} ")


def test_the_image_is_built_from_the_checkout_and_pulled_from_nowhere() -> None:
    assert "image" not in RINGFENCE
    assert (DEPLOY / RINGFENCE["build"]["context"] / "Dockerfile").is_file()
    assert "target" not in RINGFENCE["build"]
    assert DOCKERFILE[-1] == "FROM service"


def test_the_image_starts_with_the_configuration_that_is_mounted() -> None:
    mounted = dict(volume.split(":")[:2] for volume in RINGFENCE["volumes"])
    assert mounted == {"./ringfence.toml": CONFIG, "state": STATE}
    assert "command" not in RINGFENCE
    assert "entrypoint" not in RINGFENCE
    assert last("ENTRYPOINT") == '["ringfence"]'
    assert last("CMD") == f'["serve", "--config", "{CONFIG}"]'


def test_the_state_is_in_the_volume_that_belongs_to_the_user_of_the_image(config: Config) -> None:
    assert str(config.service.state_dir) == STATE == last("WORKDIR")
    assert RINGFENCE["read_only"] is True
    assert RINGFENCE["cap_drop"] == ["ALL"]
    assert "user" not in RINGFENCE


def test_the_published_ports_are_those_that_are_listened_on(config: Config) -> None:
    assert RINGFENCE["ports"] == [f"127.0.0.1:{config.api.port}:{last('EXPOSE')}"]
    assert str(config.api.port) == last("EXPOSE")
    assert config.api.host == "0.0.0.0"  # noqa: S104 - of the container
    (port,) = KAFKA["ports"]
    assert port.rpartition(":")[0] in advertised(KAFKA["environment"])


def test_nothing_is_published_beyond_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_ringfence_and_the_topic_command_use_the_address_that_the_broker_advertises(
    config: Config,
) -> None:
    server = config.kafka.common["bootstrap.servers"]
    assert server in advertised(KAFKA["environment"])
    assert server.split(":")[0] in SERVICES
    assert f"--bootstrap-server={server}" in SERVICES["topics"]["command"]
    assert KAFKA["healthcheck"]["test"][-1] == server


def test_the_topic_that_is_created_is_the_input(config: Config) -> None:
    words = dict(word.partition("=")[::2] for word in SERVICES["topics"]["command"])
    (route,) = config.routes
    assert list(route.inputs) == [words["--topic"]]
    assert config.service.create_topics


def test_each_service_waits_for_one_that_can_become_what_it_waits_for() -> None:
    for service in SERVICES.values():
        for name, wait in service.get("depends_on", {}).items():
            healthy = wait["condition"] == "service_healthy"
            assert healthy == ("healthcheck" in SERVICES[name])
            assert healthy == ("restart" in SERVICES[name]), "what ends must not be started again"


def test_the_grace_period_is_that_of_the_chart(config: Config) -> None:
    seconds = config.service.transaction_timeout_ms / 1000 + 30
    assert RINGFENCE["stop_grace_period"] == f"{seconds:.0f}s"


def test_every_volume_is_declared() -> None:
    named = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if not volume.startswith("./")
    }
    assert named == COMPOSE["volumes"].keys()


def test_compose_and_kind_run_the_kafka_that_the_tests_run() -> None:
    kafka = f"docker.io/apache/kafka:{KAFKA_VERSION}"
    assert KAFKA["image"] == SERVICES["topics"]["image"] == kafka
    assert f"image: {kafka}\n" in (DEPLOY / "kind" / "kafka.yaml").read_text("utf-8")


def test_compose_and_kind_differ_only_in_the_listeners_and_the_folder_of_the_broker() -> None:
    of_compose, of_kind = environments().values()
    assert of_compose.keys() == of_kind.keys()
    apart = {name for name in of_kind if of_kind[name] != of_compose[name]}
    assert {name for name in apart if "LISTENER" not in name} == {"KAFKA_LOG_DIRS"}


class Probed(http.server.BaseHTTPRequestHandler):
    """Answers every request with the status of its server."""

    def do_GET(self) -> None:
        status: Any = self.server
        self.send_response(status.answer if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def probed() -> Iterator[Any]:
    with http.server.HTTPServer(("127.0.0.1", 0), Probed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("answer", "healthy"), [(200, True), (503, False)])
def test_the_health_check_succeeds_when_ringfence_is_ready(
    probed: Any, config: Config, answer: int, *, healthy: bool
) -> None:
    kind, python, option, program = RINGFENCE["healthcheck"]["test"]
    assert (kind, python, option) == ("CMD", "python", "-c")
    probed.answer = answer
    assert program.count(f" {config.api.port},") == 1
    program = program.replace(f" {config.api.port},", f" {probed.server_port},")
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert (done.returncode == 0) == healthy
