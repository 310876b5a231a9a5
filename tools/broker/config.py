"""Server properties of a node that is broker and controller, for development and tests.

Every listener is on the loopback address. A caller's properties override the defaults here.
"""

import os
import random
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.broker.errors import BrokerError

HOST: Final = "127.0.0.1"
_LISTENER: Final = "CLIENT"
_CONTROLLER: Final = "CONTROLLER"
_DOOR: Final = "DOOR"
_PORT_MIN: Final = 10_000
_POLL_S: Final = 0.05
_LAST: Final[dict[tuple[int, int], int]] = {}
"""The port chosen last, by range of ports. A chosen port may not be bound yet, or be free while a
service restarts, so a process reuses none before it has gone through its whole range."""
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class Ports(NamedTuple):
    """The ports that a node listens on."""

    client: int
    controller: int


class Door(NamedTuple):
    """A further listener of a node: its port, and the port that it advertises to clients."""

    port: int
    advertised: int


def choose_ports(written_properties: Path, patience_s: float = 5.0, *, preferred: int = 0) -> Ports:
    """Return the ports of an earlier run if they are free, so that its clients reconnect.

    Args:
        written_properties: the properties file of the earlier run, if there was one
        patience_s: how long to wait for its ports; a broker that is stopping releases its data
            before the port of its controller
        preferred: the port for clients if it is free and there was no earlier run; 0 for any

    """
    if written_properties.exists():
        text = written_properties.read_text(encoding="ascii")
        client = re.search(rf"^listeners=.*\b{_LISTENER}://[^:]*:(\d+)", text, re.MULTILINE)
        controller = re.search(rf"^listeners=.*\b{_CONTROLLER}://[^:]*:(\d+)", text, re.MULTILINE)
        if client and controller:
            ports = Ports(client=int(client[1]), controller=int(controller[1]))
            if _become_free(ports, time.monotonic() + patience_s):
                return ports
    client_port = preferred if preferred and _is_free(preferred) else free_port(taken=0)
    return Ports(client=client_port, controller=free_port(taken=client_port))


def server_properties(ports: Ports, data_folder: Path) -> dict[str, str]:
    """Return a complete configuration, of which a caller may override properties."""
    client = f"{_LISTENER}://{HOST}:{ports.client}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{ports.controller}",
        "controller.listener.names": _CONTROLLER,
        "listeners": f"{client},{_CONTROLLER}://{HOST}:{ports.controller}",
        "advertised.listeners": client,
        "inter.broker.listener.name": _LISTENER,
        "listener.security.protocol.map": f"{_LISTENER}:PLAINTEXT,{_CONTROLLER}:PLAINTEXT",
        "log.dirs": str(data_folder),
        # A missing topic has to show up as a fault instead of being created.
        "auto.create.topics.enable": "false",
        # One node holds the only replica of everything.
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Fewer files to open make a start and a recovery seconds shorter.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        # Tests wait for these; the defaults are meant for large clusters.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # How long a killed node that starts again is mistaken for a duplicate of itself (default
        # 9 s).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


def quiet_properties() -> dict[str, str]:
    """Return properties that halve the work of an idle broker: fewer threads wake less often.

    For the brokers of tests, several on one machine, which are idle most of the time.
    """
    return {
        "num.network.threads": "1",
        "num.io.threads": "2",
        "metadata.max.idle.interval.ms": "0",
    }


def follower_properties(ports: Ports, leader: Ports) -> dict[str, str]:
    """Return properties of a second broker in the leader's cluster, which holds replicas."""
    return {
        "process.roles": "broker",
        "node.id": "2",
        "controller.quorum.voters": f"1@{HOST}:{leader.controller}",
        "listeners": f"{_LISTENER}://{HOST}:{ports.client}",
    }


def member_properties(number: int, ports: Mapping[int, Ports]) -> dict[str, str]:
    """Return properties of one of several nodes that are broker and controller at once.

    Every topic has a replica on each node, and all but one have to be in sync.

    Args:
        number: the id of the node
        ports: the ports of all nodes, by node id

    """
    count, enough = str(len(ports)), str(max(1, len(ports) - 1))
    voters = (f"{node_id}@{HOST}:{each.controller}" for node_id, each in ports.items())
    return {
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        "default.replication.factor": count,
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": count,
        "transaction.state.log.replication.factor": count,
        "transaction.state.log.min.isr": enough,
        "share.coordinator.state.topic.replication.factor": count,
        "share.coordinator.state.topic.min.isr": enough,
    }


def door_properties(ports: Ports, door: Door) -> dict[str, str]:
    """Return properties for a further listener, for clients that connect through a proxy."""
    client = f"{_LISTENER}://{HOST}:{ports.client}"
    controller = f"{_CONTROLLER}://{HOST}:{ports.controller}"
    protocols = (f"{name}:PLAINTEXT" for name in (_LISTENER, _CONTROLLER, _DOOR))
    return {
        "listeners": f"{client},{controller},{_DOOR}://{HOST}:{door.port}",
        "advertised.listeners": f"{client},{_DOOR}://{HOST}:{door.advertised}",
        "listener.security.protocol.map": ",".join(protocols),
    }


def secured_properties(passwords: Mapping[str, str], admin: str) -> dict[str, str]:
    """Return properties of a node with users (SASL/PLAIN) and authorization (ACLs)."""
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="{admin}" password="{passwords[admin]}" {users};'
    )
    protocol = "SASL_PLAINTEXT"
    return {
        "listener.security.protocol.map": f"{_LISTENER}:{protocol},{_CONTROLLER}:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": jaas,
        f"listener.name.{_CONTROLLER.lower()}.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{admin}",
        "allow.everyone.if.no.acl.found": "false",
    }


def to_properties_text(properties: Mapping[str, str]) -> str:
    """Return a Java properties file: one property per line, all but plain ASCII escaped."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def _escape(value: str) -> str:
    units = value.encode("utf-16-be")
    pairs = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(
        chr(unit) if " " <= chr(unit) <= "~" and chr(unit) != "\\" else f"\\u{unit:04x}"
        for unit in pairs
    )


def free_port(taken: int) -> int:
    """Choose a port below the ephemeral ports.

    Otherwise a client that retries the port of a broker that is down could get that very port as
    its own, would be connected to itself, and the broker could not come back.
    """
    low, high = port_range = _port_range()
    # Not the shared generator: two processes with the same seed would choose the same ports.
    first = _LAST.get(port_range) or random.SystemRandom().randrange(low, high)
    for step in range(1, high - low + 1):
        port = low + (first - low + step) % (high - low)
        if port != taken and _is_free(port):
            _LAST[port_range] = port
            return port
    message = f"No free port on {HOST} between {_PORT_MIN} and {_ephemeral_port_min()}: free some."
    raise BrokerError(message)


def _port_range() -> tuple[int, int]:
    """Return the ports of this process: parallel tests need disjoint ranges, as ports bind later.

    `RINGFENCE_PORTS=2/8` gives a suite the third of eight parts, which its processes divide.
    """
    low, high = _PORT_MIN, _ephemeral_port_min()
    number, _, count = os.environ.get("RINGFENCE_PORTS", "0/1").partition("/")
    low, high = _part(low, high, int(number), int(count))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker.isdecimal():
        low, high = _part(low, high, int(worker), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    return low, high


def _part(low: int, high: int, number: int, count: int) -> tuple[int, int]:
    ports = (high - low) // count
    return low + number * ports, low + (number + 1) * ports


def _ephemeral_port_min() -> int:
    if not _EPHEMERAL_RANGE.exists():
        return 32_768
    return max(_PORT_MIN + 1000, int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0]))


def are_free(ports: Ports) -> bool:
    """Return whether a broker could listen on these ports now."""
    return all(map(_is_free, ports))


def _become_free(ports: Ports, deadline_s: float) -> bool:
    while not are_free(ports):
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Java does: earlier connections in TIME_WAIT do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
