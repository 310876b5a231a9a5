"""Hosts: which names a request may call this service by.

A page in a browser can make a name of its own resolve to 127.0.0.1 and so reach a service that
listens on loopback only (DNS rebinding). The name stays in Host, and the page's own in Origin,
so a loopback bind answers to loopback names alone. Other binds sit behind names we cannot know.
"""

from typing import Final
from urllib.parse import urlsplit

from service.api_checks import is_loopback

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_USUAL_PORTS: Final = frozenset({80, 443})


def allowed_hosts(bind_host: str, advertised_url: str) -> frozenset[str] | None:
    """Return the names to answer to when listening on `bind_host`; None is any name."""
    if not is_loopback(bind_host):
        return None
    advertised = urlsplit(advertised_url).hostname
    named = {bind_host.lower(), advertised} if advertised else {bind_host.lower()}
    return LOOPBACK_NAMES | named


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
