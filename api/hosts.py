"""Allowed hosts: the names that a request may use for this service.

A page in a browser can make a name of its own resolve to the address of this service, a forwarded
port included, and then talk to it as to its own server (DNS rebinding). Such a request has that
name in Host and the page's in Origin. So a service without authentication answers only to
configured names and to addresses, which no page can rebind.
"""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from service.config.model import ApiSettings
from service.urls import is_loopback

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_USUAL_PORTS: Final = frozenset({80, 443})


def allowed_hosts(api: ApiSettings) -> frozenset[str] | None:
    """Return the names to answer to, in lower case, beside addresses; None is any name."""
    if api.asks_who and not api.allowed_hosts and not is_loopback(api.host):
        return None
    named = (api.host, urlsplit(api.advertised_url).hostname or "", *api.allowed_hosts)
    return LOOPBACK_NAMES | {name.lower() for name in named if name}


def is_allowed(name: str | None, names: frozenset[str]) -> bool:
    """Whether a request may call the service by a name: one of these, or an address."""
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
    """Return the host name in an Origin header; None for `null` and for what is malformed."""
    try:
        return urlsplit(header).hostname
    except ValueError:
        return None


def authority(host: str) -> tuple[str, int | None] | None:
    """Return name and port of a Host header; None if malformed.

    The usual ports count as none: a proxy that ends TLS leaves the name and changes the port.
    """
    return _authority(f"//{host}")


def origin_authority(origin: str) -> tuple[str, int | None] | None:
    """Return name and port of an Origin header; None for `null` and for what is malformed."""
    return _authority(origin)


def _authority(url: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if name is None else (name, None if port in _USUAL_PORTS else port)
