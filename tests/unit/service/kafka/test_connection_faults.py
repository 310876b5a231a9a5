"""Each cause of a broken way to a broker is recognised by the literal words of librdkafka 2."""

import pytest

from ringfence_service.kafka.connection_faults import (
    CAUSES,
    CLIENT_CERTIFICATE,
    CLOSES,
    CONTROLLER_LISTENER,
    EXPIRED,
    LATE,
    MECHANISM,
    NEEDS_SASL,
    NO_CONTROLLER,
    NO_COORDINATOR,
    NO_RIGHT,
    NO_SASL,
    NO_TRANSACTIONS,
    NOT_KAFKA,
    OTHER_HOST,
    PASSWORD,
    PLAINTEXT_LISTENER,
    REFUSED,
    REPLICATION,
    SILENT,
    TLS,
    TLS_LISTENER,
    UNREACHABLE,
    UNRESOLVED,
    UNTRUSTED,
    Cause,
    ClientSide,
    advertised,
    recognised,
)

PLAIN = ClientSide.of({})
SASL = ClientSide.of({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256"})


def line(text: str, state: str, scheme: str = "") -> str:
    """What the client logs of the broker at kafka:9092 while it is in a state."""
    at = f"{scheme}kafka:9092/bootstrap"
    return f"[thrd:{at}]: {at}: {text} (after 3ms in state {state})"


LINES = [
    (REFUSED, line("Connect to ipv4#10.0.0.1:9092 failed: Connection refused", "CONNECT")),
    (UNRESOLVED, line("Failed to resolve 'kafka:9092': Name or service not known", "CONNECT")),
    (UNREACHABLE, line("Connect to ipv4#10.0.0.1:9092 failed: No route to host", "CONNECT")),
    (UNREACHABLE, line("Connection setup timed out in state CONNECT", "CONNECT")),
    (
        PLAINTEXT_LISTENER,
        line(
            "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
            "PLAINTEXT broker listener?",
            "SSL_HANDSHAKE",
            "ssl://",
        ),
    ),
    (
        PLAINTEXT_LISTENER,
        line(
            "SSL handshake failed: error:0A00010B:SSL routines::wrong version number",
            "SSL_HANDSHAKE",
            "ssl://",
        ),
    ),
    (
        PLAINTEXT_LISTENER,
        line("Disconnected: SSL connection closed by peer", "SSL_HANDSHAKE", "ssl://"),
    ),
    (
        TLS_LISTENER,
        line(
            "Receive failed: Invalid response size 352518912 (0..100000000): "
            "increase receive.message.max.bytes",
            "APIVERSION_QUERY",
        ),
    ),
    (
        NOT_KAFKA,
        line(
            "Receive failed: Invalid response size 1213486160 (0..100000000): "
            "increase receive.message.max.bytes",
            "APIVERSION_QUERY",
        ),
    ),
    (
        CLOSES,
        line("Disconnected: connection closed by peer: receive 0 after POLLIN", "APIVERSION_QUERY"),
    ),
    (CLOSES, line("Connect to ipv4#10.0.0.1:9092 failed: Connection reset by peer", "CONNECT")),
    (
        UNTRUSTED,
        line(
            "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
            "certificate could not be verified, verify that ssl.ca.location is correctly "
            "configured or root CA certificates are installed (install ca-certificates package)",
            "SSL_HANDSHAKE",
            "ssl://",
        ),
    ),
    (UNTRUSTED, "certificate verify failed: self-signed certificate in certificate chain"),
    (
        OTHER_HOST,
        "certificate verify failed: Hostname mismatch, certificate is not valid for 'kafka'.",
    ),
    (
        OTHER_HOST,
        "certificate verify failed: IP address mismatch, certificate is not valid for '10.0.0.1'.",
    ),
    (EXPIRED, "certificate verify failed: certificate has expired"),
    (
        CLIENT_CERTIFICATE,
        line(
            "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: "
            "SSL alert number 42",
            "APIVERSION_QUERY",
            "ssl://",
        ),
    ),
    (
        TLS,
        line(
            "SSL handshake failed: error:0A00042E:SSL routines::tlsv1 alert protocol version: "
            "SSL alert number 70",
            "SSL_HANDSHAKE",
            "ssl://",
        ),
    ),
    (
        MECHANISM,
        line(
            "SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism: "
            "broker's supported mechanisms: PLAIN",
            "AUTH_HANDSHAKE",
            "sasl_ssl://",
        ),
    ),
    (
        NO_SASL,
        line(
            "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL "
            "state: broker's supported mechanisms: ",
            "AUTH_HANDSHAKE",
            "sasl_ssl://",
        ),
    ),
    (
        PASSWORD,
        line(
            "SASL authentication error: Authentication failed: Invalid username or password",
            "AUTH_REQ",
            "sasl_ssl://",
        ),
    ),
    (PASSWORD, "SASL_AUTHENTICATION_FAILED: Broker: SASL Authentication failed"),
    (
        NEEDS_SASL,
        line("Disconnected: connection closed by peer: receive 0 after POLLIN", "UP"),
    ),
    (
        CONTROLLER_LISTENER,
        (
            "_UNSUPPORTED_FEATURE: Failed to get metadata: "
            "Local: Required feature not supported by broker"
        ),
    ),
    (
        SILENT,
        line(
            "ApiVersionRequest failed: Local: Timed out: probably due to broker version < 0.10 "
            "(see api.version.request configuration)",
            "APIVERSION_QUERY",
        ),
    ),
    (NO_RIGHT, "GROUP_AUTHORIZATION_FAILED: Broker: Group authorization failed"),
    (NO_RIGHT, "TOPIC_AUTHORIZATION_FAILED: Broker: Topic authorization failed"),
    (NO_RIGHT, "CLUSTER_AUTHORIZATION_FAILED: Broker: Cluster authorization failed"),
    (NO_CONTROLLER, "NOT_CONTROLLER: Broker: Not controller for cluster"),
    (LATE, "REQUEST_TIMED_OUT: Broker: Request timed out"),
    (
        REPLICATION,
        (
            "INVALID_REPLICATION_FACTOR: Unable to replicate the partition 3 time(s): The target "
            "replication factor of 3 cannot be reached because only 1 broker(s) are registered."
        ),
    ),
    (
        NO_TRANSACTIONS,
        (
            "_UNSUPPORTED_FEATURE: Idempotent producer: InitProducerId (KIP-98) not supported by "
            "broker, requires broker version >= 0.11.0"
        ),
    ),
    (
        NO_COORDINATOR,
        "_TIMED_OUT: Timed out waiting for operation to finish, retry call to resume",
    ),
    (NO_COORDINATOR, "COORDINATOR_NOT_AVAILABLE: Broker: Coordinator not available"),
]


@pytest.mark.parametrize(("cause", "text"), LINES)
def test_a_text_of_the_client_has_its_cause(cause: Cause, text: str) -> None:
    found = recognised(text, SASL)
    assert found is not None
    assert found.cause is cause
    if text.startswith("["):
        assert found.server == "kafka:9092"
    assert "{" not in found.sentence("kafka:9092")
    assert "after 3ms" not in found.sentence("kafka:9092")


def test_every_cause_that_a_text_can_have_has_a_text_here() -> None:
    by_text = [cause for cause in CAUSES if cause.text != "(?!)"]
    assert {cause for cause, _ in LINES} == set(by_text)


@pytest.mark.parametrize(
    "text",
    [
        "_TRANSPORT: Failed to get metadata: Local: Broker transport failure",
        "UNKNOWN_TOPIC_OR_PART: Broker: Unknown topic or partition",
        "1/1 brokers are down",
    ],
)
def test_a_text_that_does_not_tell_has_no_cause(text: str) -> None:
    assert recognised(text, PLAIN) is None


def test_an_address_of_ipv6_is_named_whole() -> None:
    at = "[::1]:9092/bootstrap"
    text = f"[thrd:{at}]: {at}: Connect to ipv6#[::1]:9092 failed: Connection refused (after 0ms)"
    found = recognised(text, PLAIN)
    assert found is not None
    assert found.sentence("localhost:9092") == (
        "The broker at [::1]:9092 refuses connections; "
        "start it, or correct the host and the port in bootstrap.servers."
    )


@pytest.mark.parametrize(
    ("protocol", "text", "remedy"),
    [
        ("plaintext", LINES[7][1], '"security.protocol" to ssl and'),
        ("sasl_plaintext", LINES[7][1], '"security.protocol" to sasl_ssl and'),
        ("ssl", LINES[4][1], '"security.protocol" to plaintext,'),
        ("SASL_SSL", LINES[4][1], '"security.protocol" to sasl_plaintext,'),
        ("plaintext", line("Disconnected: x", "UP"), '"security.protocol" to sasl_plaintext with'),
        ("ssl", line("Disconnected: x", "UP"), '"security.protocol" to sasl_ssl with'),
        ("sasl_ssl", line("SASL PLAIN mechanism handshake failed: x", "U"), "to ssl,"),
    ],
)
def test_the_remedy_names_the_protocol_that_differs_in_what_is_wrong(
    protocol: str, text: str, remedy: str
) -> None:
    found = recognised(text, ClientSide.of({"security.protocol": protocol}))
    assert found is not None
    assert remedy in found.fix


def test_a_certificate_that_is_refused_is_told_from_one_that_is_missing() -> None:
    alert = next(text for cause, text in LINES if cause is CLIENT_CERTIFICATE)
    missing, refused = (
        recognised(alert, ClientSide.of(given)) for given in ({}, {"ssl.keystore.location": "k"})
    )
    assert missing is not None
    assert refused is not None
    assert missing.what == "requires a certificate of the client"
    assert refused.what == "refuses the client's certificate"


def test_an_advertised_name_that_leads_nowhere_is_named_beside_the_server_that_answered() -> None:
    found = recognised(
        "[thrd:kafka-internal:9092/1]: kafka-internal:9092/1: Failed to resolve "
        "'kafka-internal:9092': Name or service not known (after 0ms in state CONNECT)",
        PLAIN,
    )
    assert found is not None
    told = advertised("kafka:9092", 1, found).waited_for("kafka:9092")
    assert told.startswith(
        "the broker at kafka:9092, which answers, but broker 1 calls itself kafka-internal:9092, "
        "which has a host name that cannot be resolved (Name or service not known); "
        "set advertised.listeners of the broker"
    )
