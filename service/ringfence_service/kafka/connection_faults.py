"""Connection faults: what is wrong with the way to a broker, from what the client says of it.

`CAUSES` is the one table: each cause with how it is recognised, a sentence, and what to do. The
text is a line of the client's log, or an error as `NAME: text`. The literal texts are those of
librdkafka 2; a text that no cause fits is no fault that is known here.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_PROTOCOL: Final = "security.protocol"
_LINE: Final = re.compile(
    r"(?:^|\]: )(?:[a-z_]+://)?(?P<server>\S+)/(?:bootstrap|\d+): (?P<text>.*)"
)
"""A line about one broker: `[thrd:…]: ssl://kafka:9092/bootstrap: …`; an error lacks the first."""
_CERTIFICATES: Final = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")


class ClientSide(NamedTuple):
    """What a sentence has to know of the client's own properties."""

    protocol: str
    mechanism: str
    has_certificate: bool

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> "ClientSide":
        """Return that of these librdkafka properties."""
        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
        return cls(
            str(properties.get(_PROTOCOL, "plaintext")).lower(),
            str(mechanism),
            any(properties.get(name) for name in _CERTIFICATES),
        )

    def words(self) -> dict[str, str]:
        """Return the fields of the table's sentences that depend on it."""
        has_sasl, has_tls = self.protocol.startswith("sasl"), self.protocol.endswith("ssl")
        return {
            "protocol": self.protocol,
            "mechanism": self.mechanism,
            "without_tls": "sasl_plaintext" if has_sasl else "plaintext",
            "with_tls": "sasl_ssl" if has_sasl else "ssl",
            "without_sasl": "ssl" if has_tls else "plaintext",
            "with_sasl": "sasl_ssl" if has_tls else "sasl_plaintext",
            "certificate": (
                "refuses the client's certificate"
                if self.has_certificate
                else "requires a certificate of the client"
            ),
        }


class Cause(NamedTuple):
    """One cause: how it is recognised, what the broker does, and what to do about it.

    `what` continues "the broker at …" and, with `fix`, may have the groups of `text` and the words
    of `ClientSide` as fields.
    """

    text: str
    """A regular expression, searched in the text."""
    what: str
    fix: str
    lasts: bool = True
    """Whether it stays until somebody changes something; a broker that starts ends the others."""
    is_answer: bool = False
    """Whether a broker has answered: then the addresses are right."""


_ADDRESS: Final = "correct the host and the port in bootstrap.servers"
_LISTENER: Final = "or write the port of another listener in bootstrap.servers"

REFUSED: Final = Cause(
    r"Connection refused",
    "refuses connections",
    f"start it, or {_ADDRESS}",
    lasts=False,
)
UNRESOLVED: Final = Cause(
    r"Failed to resolve '[^']*': (?P<reason>[^(]*?) *(?:\(|$)",
    "has a host name that cannot be resolved ({reason})",
    "correct the name, or make it resolvable where the service runs",
    lasts=False,
)
UNREACHABLE: Final = Cause(
    r"(?:failed: (?P<reason>No route to host|Network is unreachable|Host is unreachable|"
    r"Connection timed out|Permission denied)|Connection setup (?P<setup>timed out))",
    "cannot be reached ({reason})",
    "check the address, the network, and the firewalls between",
    lasts=False,
)
PLAINTEXT_LISTENER: Final = Cause(
    r"connecting to a PLAINTEXT broker listener\?|wrong version number|"
    r"Disconnected: .*in state SSL_HANDSHAKE",
    "does not speak TLS, and security.protocol is {protocol}",
    f'set "security.protocol" to {{without_tls}}, {_LISTENER}',
)
TLS_LISTENER: Final = Cause(
    # A server of OpenSSL answers with a TLS alert, which the client takes for a size.
    r"Invalid response size 35251[89]\d{3} ",
    "speaks TLS, and security.protocol is {protocol}",
    'set "security.protocol" to {with_tls} and "ssl.ca.location" to the file of its certificate '
    f"authority, {_LISTENER}",
)
CLOSES: Final = Cause(
    r"(?:Disconnected: connection (?:closed|reset) by peer|Connection reset by peer"
    r"|Receive failed: .*reset).*in state (?:APIVERSION_QUERY|CONNECT)",
    "accepts connections and closes them at once",
    "compare max.connections.per.ip and max.connections of the broker with its open connections, "
    "and look whether a proxy between has lost it",
    lasts=False,
)
EXPIRED: Final = Cause(
    r"certificate verify failed: certificate (?P<reason>has expired|is not yet valid)",
    "has a certificate that {reason}",
    "renew it on the broker, or correct the clock of this machine",
)
OTHER_HOST: Final = Cause(
    r"certificate verify failed: (?:Hostname|IP address) mismatch",
    "has a certificate for other names than this one{names}",
    "write a name of the certificate in bootstrap.servers and in advertised.listeners of the "
    "broker, or have the certificate issued for this name too",
)
UNTRUSTED: Final = Cause(
    r"certificate verify failed(?:: (?P<reason>(?!broker certificate)[^:(]*))?",
    "has a certificate that is not trusted here ({reason})",
    'set "ssl.ca.location" to the PEM file of the authority that issued it',
)
CLIENT_CERTIFICATE: Final = Cause(
    r"alert (?:bad certificate|certificate required|unknown ca|certificate unknown|"
    r"certificate expired|unsupported certificate)",
    "{certificate}",
    'set "ssl.certificate.location" and "ssl.key.location" to a certificate that its '
    "ssl.truststore trusts, and that key",
)
TLS: Final = Cause(
    r"(?P<reason>error:[0-9A-F]{8}:SSL routines:[^(]*)",
    "ends the TLS handshake ({reason})",
    "compare ssl.enabled.protocols and ssl.cipher.suites of the broker with the client's",
)
MECHANISM: Final = Cause(
    r"mechanism handshake failed: .*supported mechanisms: (?P<offered>\S[^(]*?) *(?:\(|$)",
    "does not offer the SASL mechanism {mechanism}, but {offered}",
    'set "sasl.mechanism" to one that it offers',
)
NO_SASL: Final = Cause(
    r"mechanism handshake failed",
    "does not use SASL on this listener, and security.protocol is {protocol}",
    f'set "security.protocol" to {{without_sasl}}, {_LISTENER}',
)
PASSWORD: Final = Cause(
    r"(?:SASL authentication error: |SASL_AUTHENTICATION_FAILED: |_AUTHENTICATION: )"
    r"(?:\S+/(?:bootstrap|\d+): )?(?P<reason>[^(]*?) *(?:\(|$)",
    "refuses the user or the password ({reason})",
    'correct "sasl.username" and "sasl.password"; KAFKA_SASL_… variables override the file',
)
NEEDS_SASL: Final = Cause(
    r"Disconnected: .*in state UP",
    "closes the connection after the first request, as a listener with SASL does, "
    "and security.protocol is {protocol}",
    'set "security.protocol" to {with_sasl} with "sasl.mechanism", "sasl.username" and '
    f'"sasl.password", {_LISTENER}',
)
NOT_KAFKA: Final = Cause(
    r"Invalid response size",
    "does not answer as Kafka does",
    f"{_ADDRESS}: this one may be of an HTTP server",
)
CONTROLLER_LISTENER: Final = Cause(
    r"_UNSUPPORTED_FEATURE: Failed to get metadata",
    "is the listener of a controller, which serves no clients",
    "write the port of a broker's listener in bootstrap.servers",
)
SILENT: Final = Cause(
    r"ApiVersionRequest failed: Local: Timed out|SaslHandshakeRequest failed: Local: Timed out|"
    r"_TIMED_OUT: nothing answered",
    "accepts connections and does not answer requests",
    "look at its log and its load; a wrong security.protocol or proxy can look the same",
    lasts=False,
)
NO_CONTROLLER: Final = Cause(
    r"NOT_CONTROLLER|the cluster has no controller",
    "answers, but its cluster has no controller",
    "start the controllers of the cluster; kafka-metadata-quorum.sh shows what they lack",
    lasts=False,
    is_answer=True,
)
LATE: Final = Cause(
    r"^REQUEST_TIMED_OUT",
    "answers, but cannot complete a request in time",
    "look whether the controllers of its cluster run, and whether enough replicas are in sync",
    lasts=False,
    is_answer=True,
)
REPLICATION: Final = Cause(
    r"INVALID_REPLICATION_FACTOR: (?P<reason>.*)",
    "refuses to create a topic ({reason})",
    "set service.internal_replication, or default.replication.factor of the brokers, to at most "
    "their number",
    is_answer=True,
)
NO_RIGHT: Final = Cause(
    r"(?P<kind>TOPIC|GROUP|CLUSTER|TRANSACTIONAL_ID|DELEGATION_TOKEN)_AUTHORIZATION_FAILED: "
    r"(?P<reason>.*)",
    "does not grant a right ({kind}_AUTHORIZATION_FAILED: {reason})",
    "grant it to the user with ACLs; `ringfence check` names what is missing",
    is_answer=True,
)
NO_COORDINATOR: Final = Cause(
    r"COORDINATOR_NOT_AVAILABLE|Timed out waiting for operation to finish",
    "answers, but no coordinator of groups and transactions does",
    "look for partitions of __transaction_state and __consumer_offsets without a leader or with "
    "too few replicas in sync, and whether the brokers have transactions enabled",
    lasts=False,
)
COORDINATOR_TOPIC: Final = Cause(
    r"(?!)",  # found in the settings of the brokers
    "answers, but {reason}",
    "{fix}",
    is_answer=True,
)
NO_TRANSACTIONS: Final = Cause(
    r"_UNSUPPORTED_FEATURE: .*(?:[Tt]ransaction|InitProducerId)",
    "does not support transactions, without which nothing is exactly once",
    "enable transactions on the brokers, or use brokers that have them",
    is_answer=True,
)

CAUSES: Final[tuple[Cause, ...]] = (
    REFUSED,
    UNRESOLVED,
    UNREACHABLE,
    PLAINTEXT_LISTENER,
    TLS_LISTENER,
    CLOSES,
    EXPIRED,
    OTHER_HOST,
    UNTRUSTED,
    CLIENT_CERTIFICATE,
    TLS,
    MECHANISM,
    NO_SASL,
    CONTROLLER_LISTENER,
    NO_RIGHT,
    PASSWORD,
    NEEDS_SASL,
    NOT_KAFKA,
    SILENT,
    NO_CONTROLLER,
    LATE,
    REPLICATION,
    NO_TRANSACTIONS,
    NO_COORDINATOR,
    COORDINATOR_TOPIC,
)
"""All causes, the more specific before the more general."""


BROKER: Final = "the broker"


class ConnectionFault(NamedTuple):
    """What is wrong with the way to a broker, for a sentence."""

    cause: Cause
    server: str
    """The address that it concerns; empty if the text names none."""
    what: str
    fix: str

    def waited_for(self, servers: object, broker: str = BROKER) -> str:
        """Return it as what a process waits for; `servers` are the configured ones."""
        return f"{broker} at {self.server or servers}, which {self.what}; {self.fix}"

    def sentence(self, servers: object, broker: str = BROKER) -> str:
        """Return it as a sentence; `servers` are the configured ones."""
        subject = f"{broker[:1].upper()}{broker[1:]} at {self.server or servers}"
        return f"{subject} {self.what}; {self.fix}."


def recognised(text: str, side: ClientSide) -> ConnectionFault | None:
    """Return the fault that a line of the client's log or an error `NAME: text` shows."""
    line = _LINE.search(text)
    server, rest = (line["server"], line["text"]) if line else ("", text)
    for cause in CAUSES:
        if found := re.search(cause.text, rest if line else text):
            groups = {name: value for name, value in found.groupdict().items() if value}
            words = {"reason": groups.get("setup", "no reason given"), "names": ""}
            return fault(cause, server, side.words() | words | groups)
    return None


def fault(cause: Cause, server: str, words: Mapping[str, str]) -> ConnectionFault:
    """Return a fault with its sentence; `words` are the fields of the table."""
    return ConnectionFault(cause, server, cause.what.format_map(words), cause.fix.format_map(words))


def advertised(servers: str, broker: int, found: ConnectionFault) -> ConnectionFault:
    """Return the fault that a broker answers, and names an address at which it cannot be reached.

    `servers` are those that answered, `found` is what is wrong with the address.
    """
    return ConnectionFault(
        found.cause._replace(lasts=False),
        servers,
        f"answers, but broker {broker} calls itself {found.server}, which {found.what}",
        "set advertised.listeners of the broker to an address that leads to it from here, "
        "or make that name lead to it",
    )
