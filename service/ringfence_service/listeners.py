"""Listeners: the sockets of the admin API, which are bound before anything else starts.

A port that is taken is then reported before a worker joins the group. A bound socket does not
listen yet: a client that connects meanwhile is refused, as if nothing were there.
"""

import socket
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol


class BindError(Exception):
    """The API cannot listen on its configured address."""

    exit_code: Final = 2


class _Addresses(Protocol):
    """The keys of [api] that say where it listens."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def probe_port(self) -> int: ...


class Listeners(NamedTuple):
    """Bound sockets of the API and, if they have a port of their own, of probes."""

    api: socket.socket
    probes: socket.socket | None

    @classmethod
    def bound(cls, api: _Addresses) -> "Listeners":
        """Bind the configured addresses; raise BindError if one cannot be bound."""
        first = bound(api.host, api.port)
        try:
            return cls(
                first, bound(api.host, api.probe_port, "probe_port") if api.probe_port else None
            )
        except BindError:
            first.close()
            raise

    def close(self) -> None:
        """Release the addresses; does nothing to sockets that a server has taken over."""
        for each in filter(None, self):
            each.close()


def bound(host: str, port: int, key: str = "port") -> socket.socket:
    """Return a socket that is bound to an address; raise BindError if it cannot be.

    `key` is the key of [api] that sets the port, for the message of the error.
    """
    listener: socket.socket | None = None
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address[:2])
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        raise not_bound(host, port, key, error) from error
    return listener


def not_bound(host: str, port: int, key: str, error: Exception) -> BindError:
    """Return the error of an address that cannot be bound."""
    return BindError(
        f"The API cannot listen on {host}:{port} ({error});"
        f" set api.host and api.{key} to an address of this machine and a free port."
    )


def bind_warnings(api: _Addresses) -> Iterator[str]:
    """Yield a sentence if the API could not listen now: the service may be running already."""
    for key, port in (("port", api.port), ("probe_port", api.probe_port)):
        try:
            bound(api.host, port, key).close()
        except BindError as error:
            yield f"{str(error).rstrip('.')}, unless it is this service that runs there"
