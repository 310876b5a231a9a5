import socket
from itertools import product
from pathlib import Path
from threading import Timer

import pytest

from tools.broker import config, secured


def test_the_ports_of_an_earlier_run_are_taken_again_when_free(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    first = config.choose_ports(path)
    properties = config.server_properties(first, tmp_path / "data")
    path.write_text(config.to_properties_text(properties), encoding="ascii")
    assert config.choose_ports(path) == first


def test_each_of_three_nodes_finds_its_own_ports_again_behind_a_proxy_too(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    ports = {number: config.choose_ports(tmp_path / "none") for number in (1, 2, 3)}
    for number, own in ports.items():
        properties = {
            **config.server_properties(own, tmp_path / "data"),
            **config.member_properties(number, ports),
            **config.door_properties(own, config.Door(port=1111, advertised=2222)),
        }
        path.write_text(config.to_properties_text(properties), encoding="ascii")
        assert config.choose_ports(path) == own


def test_ports_that_others_have_taken_since_are_not_wanted_back(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    first = config.choose_ports(path)
    properties = config.server_properties(first, tmp_path / "data")
    path.write_text(config.to_properties_text(properties), encoding="ascii")
    with socket.socket() as other:
        other.bind((config.HOST, first.client))
        other.listen()
        assert first.client not in config.choose_ports(path, patience_s=0)


def test_ports_that_a_stopping_broker_still_holds_are_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    first = config.choose_ports(path)
    properties = config.server_properties(first, tmp_path / "data")
    path.write_text(config.to_properties_text(properties), encoding="ascii")
    with socket.socket() as stopping:
        stopping.bind((config.HOST, first.controller))
        stopping.listen()
        released = Timer(0.2, stopping.close)
        released.start()
        assert config.choose_ports(path, patience_s=60) == first
        released.join()


def test_tests_that_run_side_by_side_never_choose_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    before = 0
    for suite, worker in product(("2/8", "3/8"), ("gw0", "gw1")):
        monkeypatch.setenv("RINGFENCE_PORTS", suite)
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        chosen = {config.choose_ports(tmp_path / "none").client for _ in range(50)}
        assert min(chosen) > before
        before = max(chosen)


def test_no_port_is_chosen_again_soon(tmp_path: Path) -> None:
    chosen = [config.choose_ports(tmp_path / "none") for _ in range(200)]
    assert len({port for ports in chosen for port in ports}) == 400


def test_a_node_listens_on_the_loopback_address_only(tmp_path: Path) -> None:
    properties = config.server_properties(config.Ports(1111, 2222), tmp_path)
    for listener in properties["listeners"].split(","):
        assert "://127.0.0.1:" in listener


def test_properties_are_escaped_as_java_reads_them() -> None:
    text = config.to_properties_text({"log.dirs": "C:\\données\n😀"})
    assert text == "log.dirs=C:\\u005cdonn\\u00e9es\\u000a\\ud83d\\ude00\n"


def test_the_secured_profile_leaves_no_listener_without_names() -> None:
    properties = secured.server_properties()
    protocols = properties["listener.security.protocol.map"].split(",")
    assert [protocol.partition(":")[2] for protocol in protocols] == ["SASL_PLAINTEXT"] * 2
    assert properties["super.users"] == "User:admin"
