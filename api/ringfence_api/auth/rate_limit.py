"""Rate limit of failed authentication, by client address.

Valid credentials are never delayed: clients behind a proxy share one address, and one client with a
wrong token must not lock out the others. Tokens cannot be guessed; the limit bounds
load and log lines.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

FAILURES_MAX: Final = 10
"""Failures of an address in `WINDOW_S` that are logged and answered in full; any more get 429.

Enough for a person who mistypes. A program with a wrong token has ten log lines a minute.
"""
WINDOW_S: Final = 60.0
"""How long failures are counted, and the longest time that a 429 asks a client to wait."""
_ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted, in a few megabytes of memory.

Beyond it the address that failed longest ago is dropped, and has all its attempts again.
"""
_IPV6_HOST_BITS: Final = 64


class _Count(NamedTuple):
    since_s: float
    failures: int


class FailedAttempts:
    """Failed attempts of the last minute, by address."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now_s = monotonic_s
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, address: str) -> int | None:
        """Count a failure; return the seconds to wait if there are too many, else None."""
        network, now_s = network_of(address), self._now_s()
        with self._lock:
            count = self._counts.get(network, _Count(now_s, 0))
            if now_s - count.since_s >= WINDOW_S:
                count = _Count(now_s, 0)
            self._counts[network] = count = count._replace(failures=count.failures + 1)
            self._counts.move_to_end(network)
            if len(self._counts) > _ADDRESSES_MAX:
                self._counts.popitem(last=False)
        if count.failures <= FAILURES_MAX:
            return None
        return max(1, round(count.since_s + WINDOW_S - now_s))


def network_of(address: str) -> str:
    """Return what identifies a client: an IPv4 address, or the /64 network of an IPv6 address.

    A client usually has a whole /64 to itself and can change the address within it.
    """
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is None:
        return str(int(ip) >> _IPV6_HOST_BITS)
    return str(ip)
