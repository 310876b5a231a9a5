"""The API's addresses are bound before anything else starts, and listen later."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ringfence_main import serve
from ringfence_main.findings import findings_of
from ringfence_service.config.model import ApiSettings, Config
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.listeners import BindError, Listeners, bind_warnings
from ringfence_service.supervisor.supervisor import Supervisor
from ringfence_state.directory import StateDirectory
from tests.unit.service.kafka.test_clients import config_of


def test_a_bound_address_refuses_connections_until_it_listens() -> None:
    listeners = Listeners.bound(ApiSettings(port=0))
    address = listeners.api.getsockname()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    listeners.api.listen()
    socket.create_connection(address, timeout=5).close()
    listeners.close()


def test_a_port_of_probes_that_is_taken_frees_that_of_the_api() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        api = ApiSettings(port=port, probe_port=taken.getsockname()[1])
        with pytest.raises(BindError, match=r"api\.probe_port"):
            Listeners.bound(api)
        socket.create_server(("127.0.0.1", port)).close()


def test_a_check_warns_of_an_address_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (warning,) = bind_warnings(ApiSettings(port=port))
    assert f"cannot listen on 127.0.0.1:{port}" in warning
    assert warning.endswith("unless it is this service that runs there")
    assert list(bind_warnings(ApiSettings(port=0))) == []


def test_a_check_beside_the_running_service_does_not_warn_of_its_own_port(tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"""
[service]
group_id = "g"
state_dir = "{tmp_path}"
[[routes]]
inputs = ["orders"]
[api]
port = {port}
""")
        (alone,) = findings_of(file, None, print)
        running = StateDirectory(tmp_path, "g", "0")
        (beside,) = findings_of(file, None, print)
        running.release()
    assert [each for each in alone.warnings if str(port) in each]
    assert not [each for each in beside.warnings if str(port) in each]


def test_serve_ends_with_2_before_a_worker_starts_if_the_port_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Supervisor] = []
    monkeypatch.setattr(Supervisor, "start", started.append)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = _config(tmp_path, taken.getsockname()[1])
        with pytest.raises(ExitError) as end:
            serve.serve(config)
    assert end.value.exit_code is ExitCode.USAGE
    assert "set api.host and api.port" in end.value.sentence
    assert started == []
    serve._lock_state(config).release()  # it has not kept the lock


def _config(folder: Path, port: int) -> Config:
    config = config_of(common={"bootstrap.servers": "127.0.0.1:1"})
    service = replace(config.service, state_dir=folder)
    return replace(config, service=service, api=replace(config.api, port=port))
