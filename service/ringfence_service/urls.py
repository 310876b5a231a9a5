"""API URLs: which are valid, and which send requests over a network in clear text."""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_USER: Final = re.compile(r"//[^/?#\s]*@")


def is_loopback(host: str) -> bool:
    """Whether a server that listens on this host can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def url_problem(url: str) -> str | None:
    """Return what is wrong with the URL of an API, or None; a password in it is not repeated."""
    if "@" in url:
        return "The URL of the API contains a user or a password; remove it, and use a token."
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    return None if is_good else f"{url} is not the URL of an API; write it as http://host:port."


def is_readable_on_the_way(url: str) -> bool:
    """Whether a request to this URL goes over a network in clear text."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def without_user(text: str) -> str:
    """Return the text with the user and password of each URL in it replaced by `***`."""
    return _USER.sub("//***@", text)
