"""The child process of the demo: its configuration, its ports, its end."""

import json
import socket
import sys
import tomllib
from pathlib import Path

import pytest

from tools.demo import service as module
from tools.demo.errors import DemoError
from tools.demo.service import HOST, Service, environment, free_port
from tools.demo.topics import names_for

ADDRESS = "127.0.0.1:9"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Service:
    """A service whose process says one line and then waits for the end of the test."""
    program = "import time; print('here I am', flush=True); time.sleep(60)"
    monkeypatch.setattr(module, "SERVE", (sys.executable, "-c", program))
    return Service(tmp_path, ADDRESS, names_for(is_shared=False))


def test_the_configuration_says_what_the_run_needs(tmp_path: Path) -> None:
    names = names_for(is_shared=True)
    service = Service(tmp_path / "", ADDRESS, names)
    config = tomllib.loads((tmp_path / "ringfence.toml").read_text(encoding="utf-8"))
    assert config["kafka"]["bootstrap.servers"] == ADDRESS
    assert config["api"] == {"host": HOST, "port": service.port}
    assert config["addresses"]["flights.#"]["id_cache_size"] == 400_000
    route = config["routes"][0]
    assert route["scope"] == "partition"
    assert [*route["inputs"], route["output"], route["dead_letter"]] == list(names.topics)


def test_names_are_plain_on_a_broker_of_our_own_and_new_each_run_on_a_shared_one() -> None:
    assert names_for(is_shared=False).topics == ("flights", "flights.unique", "flights.dlq")
    assert names_for(is_shared=True).input.startswith("flights.")
    assert names_for(is_shared=True) != names_for(is_shared=True)


def test_a_taken_port_is_not_chosen() -> None:
    with socket.socket() as taken:
        port = free_port()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as who chose it
        taken.bind((HOST, port))
        taken.listen()
        assert free_port() != port


@pytest.mark.parametrize(
    ("fault", "told"), [(None, "native"), ("not built", "native  (not built)")]
)
def test_it_tells_which_fast_path_runs_once_it_is_told(
    service: Service, monkeypatch: pytest.MonkeyPatch, fault: str | None, told: str
) -> None:
    body = json.dumps({"fast_path": "native", "fast_path_fault": fault}).encode()
    answers = iter([(0, b""), (503, b""), (200, body)])
    monkeypatch.setattr(module, "answer", lambda _port, _path: next(answers))
    monkeypatch.setattr(module, "PROBE_PAUSE_S", 0)
    assert service.fast_path() == told


def test_settings_of_another_service_do_not_reach_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_API__PORT", "1")
    monkeypatch.setenv("RINGFENCE_BROKER", "embedded")
    monkeypatch.setenv("KAFKA_SASL_MECHANISM", "PLAIN")
    passed = environment(ADDRESS)
    assert "RINGFENCE_API__PORT" not in passed
    assert passed["RINGFENCE_BROKER"] == "embedded"
    assert passed["KAFKA_SASL_MECHANISM"] == "PLAIN"
    assert passed["KAFKA_BOOTSTRAP_SERVERS"] == ADDRESS


def test_a_service_that_ends_by_itself_is_reported_with_the_end_of_its_log(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SERVE", (sys.executable, "-c", "print('so long'); exit(5)"))
    service.start()
    with pytest.raises(DemoError, match=r"ended by itself with status 5(.|\n)*so long"):
        service.wait_until_ready()


def test_a_service_that_never_gets_ready_is_not_waited_for_for_ever(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READY_TIMEOUT_S", 0.3)
    with service:
        service.start()
        with pytest.raises(DemoError, match="not ready after"):
            service.wait_until_ready()
        service.kill()


def test_after_a_kill_the_process_is_gone_and_can_be_started_again(service: Service) -> None:
    with service:
        service.start()
        first = service.kill()
        assert not Path(f"/proc/{first}").exists()
        service.start()
        service.check()
        assert service.kill() != first


def test_a_stop_that_does_not_end_with_status_0_is_reported(service: Service) -> None:
    service.start()
    with pytest.raises(DemoError, match="stopped with status -15, not 0"):
        service.stop()
