"""Every broken way to a broker is named with what to do: by `check`, and by a service that waits.

One broker has a listener for each kind of security, and defaults that one broker cannot keep.
Sockets of the test stand for what no listener does.
"""

import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka import connection_probe
from ringfence_service.kafka.connection_probe import Explainer, answers, probe
from ringfence_service.kafka.coordinator_topics import OFFSETS, TRANSACTIONS
from tests.broker.desk import Desk, sentence
from tests.broker.service import properties, ringfence
from tests.broker.topics import create_topic
from tests.support.waiting import eventually
from tools.broker.config import HOST, free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.node import Machine

pytestmark = pytest.mark.broker

LISTENERS: Final = {
    "TLS": "SSL",
    "STRANGE": "SSL",
    "MUTUAL": "SSL",
    "USERS": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
    "HIDDEN": "PLAINTEXT",
    "SHUT": "PLAINTEXT",
}
"""Listeners beside that of plaintext, by name: what each of them speaks."""
HIDDEN: Final = "kafka-internal.invalid:9092"
USER: Final = {"sasl.mechanism": "PLAIN", "sasl.username": "service", "sasl.password": "secret"}


class Lab(NamedTuple):
    """A broker with many listeners, and the files of its clients."""

    ports: Mapping[str, int]
    folder: Path

    def client(self, listener: str, protocol: str = "", **files: str) -> dict[str, str]:
        """The properties of a client of a listener; files by their property, `_` for `.`."""
        given = {name.replace("_", "."): str(self.folder / file) for name, file in files.items()}
        named = {"security.protocol": protocol} if protocol else {}
        users = USER if protocol.startswith("sasl") else {}
        return {"bootstrap.servers": f"{HOST}:{self.ports[listener]}", **named, **users, **given}


def _store(certificate: trustme.LeafCert, path: Path) -> None:
    """As Java reads it: the key in PKCS #8, then the chain."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(text + b"".join(each.bytes() for each in certificate.cert_chain_pems))


@pytest.fixture(scope="module")
def lab(embedded_kind: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:  # noqa: ARG001 - skips where there is none
    folder = tmp_path_factory.mktemp("lab")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other-ca.pem"))
    _store(authority.issue_cert(HOST), folder / "server.pem")
    _store(authority.issue_cert("elsewhere.example"), folder / "elsewhere.pem")
    _store(trustme.CA().issue_cert("stranger"), folder / "stranger.pem")
    broker = EmbeddedBroker(folder / "broker", machine=Machine(heap_mb=512, short_lived=True))
    own = broker.node.ports
    ports = {name: free_port(own.client) for name in LISTENERS}
    listeners = {name: f"{name}://{HOST}:{port}" for name, port in ports.items()}
    client, controller = f"CLIENT://{HOST}:{own.client}", f"CONTROLLER://{HOST}:{own.controller}"
    shown = {**listeners, "HIDDEN": f"HIDDEN://{HIDDEN}", "SHUT": f"SHUT://{HOST}:{free_port(0)}"}
    kinds = {"CLIENT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
    users = "org.apache.kafka.common.security.plain.PlainLoginModule required user_service=secret;"
    broker.configure(
        {
            "listeners": ",".join([client, controller, *listeners.values()]),
            "advertised.listeners": ",".join([client, *shown.values()]),
            "listener.security.protocol.map": ",".join(f"{n}:{k}" for n, k in kinds.items()),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.strange.ssl.keystore.type": "PEM",
            "listener.name.strange.ssl.keystore.location": str(folder / "elsewhere.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.users.plain.sasl.jaas.config": users,
            "listener.name.both.plain.sasl.jaas.config": users,
            # Kafka's own defaults, which one broker cannot keep.
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
        }
    )
    with broker:
        yield Lab({**ports, "CLIENT": own.client, "CONTROLLER": own.controller}, folder)


def told(client: Mapping[str, str]) -> str:
    """What `answers` says of a broken way."""
    with pytest.raises(ExitError) as end:
        answers(client)
    assert end.value.exit_code is ExitCode.BROKER
    return end.value.sentence


@pytest.mark.parametrize(
    ("listener", "protocol", "cause"),
    [
        ("TLS", "", "speaks TLS, and security.protocol is plaintext"),
        ("BOTH", "sasl_plaintext", "speaks TLS, and security.protocol is sasl_plaintext"),
        ("CLIENT", "ssl", "does not speak TLS, and security.protocol is ssl"),
        ("USERS", "sasl_ssl", "does not speak TLS, and security.protocol is sasl_ssl"),
        ("USERS", "", "closes the connection after the first request"),
        ("BOTH", "ssl", "closes the connection after the first request"),
        ("CLIENT", "sasl_plaintext", "does not use SASL on this listener"),
        ("TLS", "sasl_ssl", "does not use SASL on this listener"),
        ("CONTROLLER", "", "is the listener of a controller"),
    ],
)
def test_another_protocol_than_that_of_the_listener_is_named(
    lab: Lab, listener: str, protocol: str, cause: str
) -> None:
    said = told(lab.client(listener, protocol, ssl_ca_location="ca.pem"))
    assert said.startswith(f"The broker at {HOST}:{lab.ports[listener]} {cause}")


def test_certificates_are_told_apart(lab: Lab) -> None:
    def said(listener: str, **files: str) -> str:
        return told(lab.client(listener, "ssl", **files))

    assert "not trusted here (unable to get local issuer" in said("TLS")
    assert "not trusted here" in said("TLS", ssl_ca_location="other-ca.pem")
    assert "for other names than this one (elsewhere.example)" in said(
        "STRANGE", ssl_ca_location="ca.pem"
    )
    assert "requires a certificate of the client" in said("MUTUAL", ssl_ca_location="ca.pem")
    assert "refuses the client's certificate" in said(
        "MUTUAL",
        ssl_ca_location="ca.pem",
        ssl_certificate_location="stranger.pem",
        ssl_key_location="stranger.pem",
    )


def test_users_and_mechanisms_are_told_apart(lab: Lab) -> None:
    client = lab.client("USERS", "sasl_plaintext")
    assert probe(client) is None
    refused = told({**client, "sasl.password": "guessed"})
    assert "refuses the user or the password (Authentication failed" in refused
    assert "guessed" not in refused
    offered = told({**client, "sasl.mechanism": "SCRAM-SHA-256"})
    assert "does not offer the SASL mechanism SCRAM-SHA-256, but PLAIN" in offered


@pytest.fixture
def listening() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Return what starts a server that treats its connections so, and returns its address."""
    with ExitStack() as servers:

        def start(treat: Callable[[socket.socket], None]) -> str:
            server = servers.enter_context(socket.create_server((HOST, 0)))

            def serve() -> None:
                with suppress(OSError):
                    while True:
                        connection, _ = server.accept()
                        threading.Thread(target=treat, args=(connection,), daemon=True).start()

            threading.Thread(target=serve, daemon=True).start()
            return f"{HOST}:{server.getsockname()[1]}"

        yield start


def closes(connection: socket.socket) -> None:
    connection.close()


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def speaks_http(connection: socket.socket) -> None:
    connection.recv(1_000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.close()


def is_silent(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        while connection.recv(1_000):
            pass


@pytest.mark.parametrize(
    ("treat", "protocol", "cause"),
    [
        (closes, "plaintext", "accepts connections and closes them at once"),
        (closes, "ssl", "accepts connections and closes them at once"),
        (resets, "plaintext", "accepts connections and closes them at once"),
        (speaks_http, "plaintext", "does not answer as Kafka does"),
        (is_silent, "plaintext", "accepts connections and does not answer requests"),
    ],
)
def test_a_server_that_is_no_broker_is_named(
    listening: Callable[[Callable[[socket.socket], None]], str],
    treat: Callable[[socket.socket], None],
    protocol: str,
    cause: str,
) -> None:
    servers = listening(treat)
    found = probe({"bootstrap.servers": servers, "security.protocol": protocol})
    assert found is not None
    assert found.sentence(servers).startswith(f"The broker at {servers} {cause}")


def test_a_server_of_another_tls_is_named(
    lab: Lab, listening: Callable[[Callable[[socket.socket], None]], str]
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(lab.folder / "server.pem")

    def shakes_hands(connection: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
            secured.recv(1)
        connection.close()

    found = probe({"bootstrap.servers": listening(shakes_hands)})
    assert found is not None
    assert found.what == "speaks TLS, and security.protocol is plaintext"


def test_a_broker_that_is_just_starting_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a server here that begins to listen after a while, and does not answer."""
    monkeypatch.setattr(connection_probe, "PATIENCE_S", 4.0)
    port = free_port(0)
    late = threading.Timer(2.0, lambda: servers.append(socket.create_server((HOST, port))))
    servers: list[socket.socket] = []
    late.start()
    said = told({"bootstrap.servers": f"{HOST}:{port}"})
    late.join()
    servers[0].close()
    assert "does not answer requests" in said


def test_a_host_that_does_not_exist_is_named() -> None:
    found = probe({"bootstrap.servers": "no-such-host.invalid:9092"})
    assert found is not None
    assert found.what.startswith("has a host name that cannot be resolved (")


def test_check_ends_with_3_and_the_cause(tmp_path: Path) -> None:
    servers = f"{HOST}:{free_port(0)}"
    cause = "refuses connections; start it, or correct the host"
    with Desk({"bootstrap.servers": servers}, tmp_path, "check") as desk:
        done = ringfence("check", "--config", str(desk.config()))
    assert done.returncode == 3, done.stderr
    assert f"The broker at {servers} {cause}" in sentence(done.stderr)


def test_check_names_the_advertised_address_that_leads_nowhere(lab: Lab, tmp_path: Path) -> None:
    with Desk(lab.client("HIDDEN"), tmp_path, "hidden") as desk:
        done = ringfence("check", "--config", str(desk.config()))
    assert done.returncode == 3, done.stderr
    assert re.search(
        rf"The broker at {HOST}:\d+ answers, but broker 1 calls itself {re.escape(HIDDEN)}, which "
        r"has a host name that cannot be resolved \(.*\); set advertised\.listeners",
        sentence(done.stderr),
    )
    refused = probe(lab.client("SHUT"))
    assert refused is not None
    assert re.search(r"broker 1 calls itself [0-9.:]+, which refuses connections", refused.what)


def test_a_service_says_on_readyz_in_its_log_and_at_its_end_what_the_way_lacks(
    lab: Lab, tmp_path: Path
) -> None:
    with Desk(lab.client("HIDDEN"), tmp_path, "served") as desk:
        service = desk.service()
        service.wait_complaint(f"broker 1 calls itself {HIDDEN}, which has a host name")
        waits = service.told("/v1/status")["waiting_for"]
        assert "set advertised.listeners" in waits
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
        service.kill()
    reasons = [line["reason"] for line in lines if line["event"] == "waiting"]
    assert [reason for reason in reasons if HIDDEN in reason] == [waits]


def test_check_and_a_service_that_waits_name_replication_factors_that_one_broker_cannot_keep(
    lab: Lab, tmp_path: Path
) -> None:
    client = lab.client("CLIENT")
    with Desk(client, tmp_path, "copied") as desk:
        desk.create()
        done = ringfence("check", "--config", str(desk.config()))
        assert done.returncode == 1, done.stdout + done.stderr
        for setting in ("offsets.topic", "transaction.state.log"):
            factor = f"{setting}.replication.factor"
            assert f"{factor} of the brokers is 3, and the cluster has 1 broker" in done.stdout
            assert f"fix: set {factor} to at most 1 on the brokers" in done.stdout
    explainer = Explainer(lambda: client, (OFFSETS, TRANSACTIONS))
    unanswered = "_TIMED_OUT: Timed out waiting for operation to finish, retry call to resume"

    def is_told() -> bool:
        waits = explainer.explain(unanswered) or ""
        return "which answers, but offsets.topic.replication.factor of the brokers is 3" in waits

    eventually(is_told)


def test_a_bridge_says_which_of_its_clusters_cannot_be_reached(lab: Lab, tmp_path: Path) -> None:
    create_topic(lab.client("CLIENT"), "bridged", 1)
    target = lab.client("CLIENT", "ssl")
    config = tmp_path / "bridge.toml"
    config.write_text(
        f'[bridge]\ntopics = ["bridged"]\n[bridge.source]\n{properties(lab.client("CLIENT"))}\n'
        f"[bridge.target]\n{properties(target)}\n[api]\nport = 0\n"
    )
    done = ringfence("check", "--config", str(config))
    assert done.returncode == 3, done.stdout + done.stderr
    said = sentence(done.stderr)
    assert f"The target's broker at {target['bootstrap.servers']} does not speak TLS" in said
