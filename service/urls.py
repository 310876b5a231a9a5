"""API URLs: which can be asked, and which are sent over a network in clear."""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_USER: Final = re.compile(r"//[^/?#\s]*@")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host that is listened on."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def url_problem(url: str) -> str | None:
    """What is wrong with the URL of an API, if anything; a password in it is not repeated."""
    if "@" in url:
        return "The URL of the API holds a user or a password; leave it out, and name a token."
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        is_good = False
    return None if is_good else f"{url} is no address of an API; write it as http://host:port."


def is_readable_on_the_way(url: str) -> bool:
    """Whether what is sent there goes over a network in clear."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def without_user(text: str) -> str:
    """The text, without what URLs in it hold of users and passwords."""
    return _USER.sub("//***@", text)
