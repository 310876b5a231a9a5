"""Allowed hosts: the host names under which a request may address this service.

A web page can make its own domain resolve to the address of this service, a forwarded port
included, and then send requests to it as to its own server (DNS rebinding). Such a request has that
domain in Host and in Origin. So a service without authentication accepts only configured names and
IP addresses, which no page can rebind.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from ringfence_service.config.model import ApiSettings
from ringfence_service.urls import is_loopback

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS: Final = frozenset({80, 443})


def allowed_hosts(api: ApiSettings) -> frozenset[str] | None:
    """Return the accepted names in lower case, in addition to IP addresses; None accepts any."""
    if api.asks_who and not api.allowed_hosts and not is_loopback(api.host):
        return None
    named = (api.host, urlsplit(api.advertised_url).hostname or "", *api.allowed_hosts)
    return LOOPBACK_NAMES | {name.lower() for name in named if name}


def is_allowed(name: str | None, names: frozenset[str]) -> bool:
    """Return whether a host is an IP address or one of these names."""
    if name is None:
        return False
    try:
        return bool(ip_address(name))
    except ValueError:
        return name.removesuffix(".") in names


def host_name(header: str) -> str | None:
    """Return the name in a Host header, in lower case and without its port; None if malformed."""
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def origin_name(header: str) -> str | None:
    """Return the host name in an Origin header; None for `null` or a malformed header."""
    try:
        return urlsplit(header).hostname
    except ValueError:
        return None


def authority(host: str) -> tuple[str, int | None] | None:
    """Return name and port of a Host header; None if malformed.

    Ports 80 and 443 count as none: a proxy that terminates TLS keeps the name and changes the port.
    """
    return _authority(f"//{host}")


def origin_authority(origin: str) -> tuple[str, int | None] | None:
    """Return name and port of an Origin header; None for `null` or a malformed header."""
    return _authority(origin)


def _authority(url: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if name is None else (name, None if port in _DEFAULT_PORTS else port)
