"""Connection probe: finds out what is wrong with the way to a cluster, by connecting again.

A probe has clients of its own, so that those of the service need not log what nobody reads. It
connects to the bootstrap servers, then to each broker by the name that the broker gives itself.
It changes nothing. Most probes take less than a second; one takes half a minute at most.
"""

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata, ClusterMetadata

from ringfence_service.config.kafka_properties import DEFAULT_PORT, SERVERS
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.admin import REQUEST_TIMEOUT_S
from ringfence_service.kafka.connection_faults import (
    BROKER,
    CLOSES,
    CONTROLLER_LISTENER,
    COORDINATOR_TOPIC,
    NO_CONTROLLER,
    NO_COORDINATOR,
    OTHER_HOST,
    PLAINTEXT_LISTENER,
    REFUSED,
    SILENT,
    TLS_LISTENER,
    UNREACHABLE,
    UNRESOLVED,
    UNTRUSTED,
    ClientSide,
    ConnectionFault,
    advertised,
    fault,
    recognised,
)
from ringfence_service.kafka.coordinator_topics import coordinator_topics

_PROBING: Final[dict[str, str | int | float]] = {
    "log_level": 6,  # a connection that is closed counts as no error
    "log.connection.close": True,
    "socket.connection.setup.timeout.ms": 3_000,
    "api.version.request.timeout.ms": 3_000,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 500,
}
_SLICE_S: Final = 0.2
"""How long the first request is waited for: most faults are known by then."""
_BROKERS_MAX: Final = 8
"""Of so many brokers the names are tried; what is wrong with one mostly is with all."""
_TLS_S: Final = 2.0
"""How long a connection, and each step of a handshake, may take.

Until the probe is over, failures are reported without its finding.
"""
_FRESH_S: Final = 30.0
"""For how long a finding explains failures."""
_WAIT_S: Final = 2.0
"""How long a failure waits for the first finding: most take less, and the loop has to go on."""
_PAUSE_S: Final = 5.0
"""How long after a probe the next one begins."""

PATIENCE_S: Final = 7.0
"""How long a server that may just be starting is asked again, before that counts as a fault."""

_UNCLEAR: Final = re.compile(
    r"_TRANSPORT|_TIMED_OUT|_ALL_BROKERS_DOWN|_RESOLVE|_SSL|_NOENT|_WAIT_COORD|_NO_OFFSET|"
    r"COORDINATOR|CONCURRENT_TRANSACTIONS|no broker|nothing"
)
"""Errors behind which may be a broken connection, or a coordinator that cannot work."""

Properties = Mapping[str, Any]


class _Contact:
    """A client that asks servers for metadata, and what its log says meanwhile."""

    def __init__(self, properties: Properties, servers: str) -> None:
        self.servers = servers
        self.metadata: ClusterMetadata | None = None
        self.faults: dict[str, ConnectionFault] = {}
        """The first recognised fault of each server."""
        self._side = ClientSide.of(properties)
        given = {name: value for name, value in properties.items() if name != "debug"}
        self._client = AdminClient({**given, **_PROBING, SERVERS: servers}, logger=self)

    def log(self, _level: int, _text: str, *rest: object) -> None:
        """Take one line of the client's log; the binding calls this while it is polled."""
        self._note(str(rest[-1]))

    def ask(self) -> None:
        """Ask until the servers have answered, all have a fault, or the time is up.

        Each request has twice the time of the one before: a fault is soon known, and a cluster that
        is slow may take `REQUEST_TIMEOUT_S` as elsewhere.
        """
        timeout_s = _SLICE_S
        while not self._is_settled(timeout_s) and timeout_s < REQUEST_TIMEOUT_S:
            timeout_s = min(2 * timeout_s, REQUEST_TIMEOUT_S)

    def _is_settled(self, timeout_s: float) -> bool:
        """Ask once; return whether the servers have answered, or all have a fault."""
        unanswered = ""
        try:
            self.metadata = self._client.list_topics(timeout=timeout_s)
        except KafkaException as error:
            unanswered = f"{error.args[0].name()}: {error.args[0].str()}"
        self._client.poll(0)
        if self.metadata is not None:
            return True
        found = recognised(unanswered, self._side)
        if found is not None and found.cause is CONTROLLER_LISTENER:
            self.faults[self.servers] = found._replace(server=self.servers)
            return True
        return len(self.faults) >= self.servers.count(",") + 1

    def _note(self, line: str) -> None:
        # The client also connects to the brokers that it learns of.
        found = recognised(line, self._side) if "/bootstrap: " in line else None
        if found is not None:
            self.faults.setdefault(found.server, found)

    def found(self) -> ConnectionFault:
        """Return the fault of a server that has not answered."""
        if not self.faults:
            return _by_tcp(self.servers)
        first = next(iter(self.faults.values()))
        like = (each.server for each in self.faults.values() if each.cause is first.cause)
        return first._replace(server=",".join(sorted(like)))


def probe(properties: Properties, *, needs_all: bool = True) -> ConnectionFault | None:
    """Return what is wrong with the way to the cluster of these properties; None if nothing is.

    Unless it `needs_all`, one broker that can be reached is enough: others may just have gone.
    """
    servers = str(properties.get(SERVERS, ""))
    contact = _Contact(properties, servers)
    contact.ask()
    if contact.metadata is None:
        return _by_tls(contact.found(), properties)
    named, controller = contact.metadata.brokers, contact.metadata.controller_id
    if controller not in named:
        return fault(NO_CONTROLLER, servers, {})
    ids = sorted(named, key=lambda number: number != controller)[:_BROKERS_MAX]
    contacts = {number: _Contact(properties, _address(named[number])) for number in ids}
    with ThreadPoolExecutor(len(contacts)) as threads:
        list(threads.map(_Contact.ask, contacts.values()))
    missed = {number: each for number, each in contacts.items() if each.metadata is None}
    if not missed or (len(missed) < len(contacts) and not needs_all):
        return None
    number, each = next(iter(missed.items()))
    return advertised(servers, number, _by_tls(each.found(), properties))


def _address(broker: BrokerMetadata) -> str:
    host = f"[{broker.host}]" if ":" in str(broker.host) else broker.host
    return f"{host}:{broker.port}"


def _by_tcp(servers: str) -> ConnectionFault:
    """Return the fault of servers that the client's log does not mention in time."""
    first = servers.partition(",")[0].strip()
    try:
        socket.create_connection(_host_and_port(first), timeout=_TLS_S).close()
    except socket.gaierror as error:
        return fault(UNRESOLVED, first, {"reason": error.strerror or "no reason given"})
    except TimeoutError:
        return fault(UNREACHABLE, first, {"reason": "no answer in time"})
    except ConnectionRefusedError:
        return fault(REFUSED, first, {})
    except OSError as error:
        return fault(UNREACHABLE, first, {"reason": error.strerror or str(error)})
    return fault(SILENT, first, {})


def _host_and_port(server: str) -> tuple[str, int]:
    """Return the parts of `host:port`, as the client reads it."""
    parts = urlsplit(f"//{server.rpartition('://')[2]}")
    return parts.hostname or "", parts.port or DEFAULT_PORT


def _by_tls(found: ConnectionFault, properties: Properties) -> ConnectionFault:
    """Return the fault that a TLS handshake shows, where the client's log does not tell it apart.

    A server of TLS closes a connection without it, and one without TLS closes a handshake, both
    like one with too many connections. A certificate that is not trusted looks like one for
    another name.
    """
    if found.cause not in {CLOSES, UNTRUSTED, PLAINTEXT_LISTENER}:
        return found
    address = _host_and_port(found.server.partition(",")[0])
    words = ClientSide.of(properties).words()
    if found.cause is PLAINTEXT_LISTENER:
        return fault(CLOSES, found.server, words) if _closes_at_once(address) else found
    answer = _Handshake(address, properties)
    if found.cause is CLOSES:
        return fault(TLS_LISTENER, found.server, words) if answer.is_tls else found
    refused = recognised(f"certificate verify failed: {answer.refusal}", ClientSide.of(properties))
    if not answer.refusal or refused is None:
        return found
    if refused.cause is OTHER_HOST:
        return fault(OTHER_HOST, found.server, {"names": answer.names()})
    return refused._replace(server=found.server)


def _closes_at_once(address: tuple[str, int]) -> bool:
    """Whether a server ends a connection on which nothing was sent; others wait for a request."""
    try:
        with socket.create_connection(address, timeout=_TLS_S) as connection:
            connection.settimeout(_SLICE_S)
            return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


class _Handshake:
    """A TLS handshake with a server: whether it speaks TLS, and why its certificate is refused."""

    def __init__(self, address: tuple[str, int], properties: Properties) -> None:
        self._address = address
        self._authorities = {
            way: properties[name]
            for way, name in (("cafile", "ssl.ca.location"), ("cadata", "ssl.ca.pem"))
            if properties.get(name)
        }
        self.is_tls, self.refusal = False, ""
        try:
            self._connect(checks_name=True)
        except ssl.SSLCertVerificationError as error:
            self.is_tls, self.refusal = True, error.verify_message
        except ssl.SSLError as error:
            self.is_tls = "ALERT" in (error.reason or "")
        except OSError:
            return
        else:
            self.is_tls = True

    def names(self) -> str:
        """Return the names in its certificate, for a sentence."""
        names: list[str] = []
        with suppress(OSError):
            certificate = self._connect(checks_name=False)
            names = [str(value) for _, value in certificate.get("subjectAltName", ())]
        return f" ({', '.join(names[:5])})" if names else ""

    def _connect(self, *, checks_name: bool) -> Mapping[str, Any]:
        context = ssl.create_default_context()
        if self._authorities:
            with suppress(OSError):
                context.load_verify_locations(**self._authorities)
        context.check_hostname = checks_name
        with (
            socket.create_connection(self._address, timeout=_TLS_S) as raw,
            context.wrap_socket(raw, server_hostname=self._address[0]) as connection,
        ):
            return connection.getpeercert() or {}


class Explainer:
    """Says what is wrong with the way to a cluster, by probes on a thread of their own.

    Safe on any thread.
    """

    def __init__(
        self,
        properties: Callable[[], Properties],
        coordinators: Sequence[str],
        broker: str = BROKER,
    ) -> None:
        """`coordinators` are the topics of the coordinators that the process needs.

        `broker` is how sentences call a broker of the cluster.
        """
        self._properties, self._coordinators = properties, coordinators
        self._broker = broker
        self._lock = threading.Lock()
        self._probing: threading.Thread | None = None
        self._found: ConnectionFault | None = None
        self._found_s = float("-inf")

    def explain(self, cause: str) -> str | None:
        """Return what a process waits for that met this error, `NAME: text`; None if unknown.

        Where the error does not tell, a probe begins. It is waited for two seconds at most; later
        calls have what it has found.
        """
        properties = self._properties()
        found = recognised(cause, ClientSide.of(properties))
        if found is None and not _UNCLEAR.search(cause):
            return None
        if found is None or not found.cause.is_answer:
            is_known, probed = self._probed(properties)
            is_left = found is not None and is_known and found.cause is NO_COORDINATOR
            found = found if is_left and probed is None else probed
        return None if found is None else found.waited_for(properties.get(SERVERS), self._broker)

    def _probed(self, properties: Properties) -> tuple[bool, ConnectionFault | None]:
        """Return whether a finding is known, and the finding; begin a probe if it is time."""
        now_s = time.monotonic()
        with self._lock:
            if self._probing is None and now_s - self._found_s > _PAUSE_S:
                self._probing = threading.Thread(
                    target=self._run, args=(properties,), name="ringfence-connection", daemon=True
                )
                self._probing.start()
            probing = self._probing
        if probing is not None and now_s - self._found_s > _FRESH_S:
            probing.join(_WAIT_S)
        with self._lock:
            is_known = time.monotonic() - self._found_s < _FRESH_S
            return is_known, self._found if is_known else None

    def _run(self, properties: Properties) -> None:
        found: ConnectionFault | None = None
        try:
            found = _examined(properties, self._coordinators)
        finally:
            with self._lock:
                self._found, self._found_s, self._probing = found, time.monotonic(), None


def _examined(properties: Properties, coordinators: Sequence[str]) -> ConnectionFault | None:
    """Return what is wrong with the way to the cluster, or with topics of its coordinators."""
    with suppress(KafkaException):  # properties that the client refuses, or no answer
        if found := probe(properties):
            return found
        admin = AdminClient({**properties, "log_level": 0})
        for each in coordinator_topics(admin, coordinators) if coordinators else ():
            for problem in each.problems():
                words = {"reason": problem.what, "fix": problem.fix}
                return fault(COORDINATOR_TOPIC, "", words)
    return None


def answers(properties: Properties, broker: str = BROKER) -> None:
    """Raise ExitError 3 with the cause if the cluster cannot be reached."""
    found = unreachable(properties)
    if found is not None:
        raise ExitError(ExitCode.BROKER, found.sentence(properties.get(SERVERS), broker))


def unanswered(
    properties: Properties, cause: str, coordinators: Sequence[str] = (), broker: str = BROKER
) -> ExitError:
    """Return the end of a check of which a request failed with this error, `NAME: text`.

    `coordinators` are as in `Explainer`.
    """
    servers = properties.get(SERVERS)
    found = _examined(properties, coordinators)
    found = found or recognised(cause, ClientSide.of(properties))
    if found is not None:
        return ExitError(ExitCode.BROKER, found.sentence(servers, broker))
    return ExitError(
        ExitCode.BROKER,
        f"{broker[:1].upper()}{broker[1:]} at {servers} does not answer requests ({cause}); "
        "check the address, the network and the user's ACLs.",
    )


def unreachable(properties: Properties) -> ConnectionFault | None:
    """Return what keeps us from the cluster, once that is certain; None as soon as nothing does.

    A fault that a broker may have while it starts has to stay for `PATIENCE_S`, any other one has
    to be found twice.
    """
    began_s, last = time.monotonic(), None
    while (found := probe(properties, needs_all=False)) is not None:
        is_certain = found.cause.lasts and last is not None and last.cause is found.cause
        if is_certain or time.monotonic() - began_s > PATIENCE_S:
            return found
        last = found
        time.sleep(_SLICE_S)
    return None
