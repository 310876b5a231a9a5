"""Rate limit of failed authentication, by client address.

Valid credentials are never delayed: clients behind a proxy share one address, and one client with a
wrong token must not lock out the others. Tokens cannot be guessed; the limit bounds the noise.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

FAILURES_MAX: Final = 10
WINDOW_S: Final = 60.0
_ADDRESSES_MAX: Final = 10_000
_IPV6_HOST_BITS: Final = 64


class _Count(NamedTuple):
    since_s: float
    failures: int


class FailedAttempts:
    """Failures of the last minute, by address. Of too many addresses the oldest is forgotten."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._now_s = monotonic_s
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, address: str) -> int | None:
        """Count a failure; tells for how many seconds it is one too many, or None."""
        who, now_s = network_of(address), self._now_s()
        with self._lock:
            count = self._counts.get(who, _Count(now_s, 0))
            if now_s - count.since_s >= WINDOW_S:
                count = _Count(now_s, 0)
            self._counts[who] = count = count._replace(failures=count.failures + 1)
            self._counts.move_to_end(who)
            if len(self._counts) > _ADDRESSES_MAX:
                self._counts.popitem(last=False)
        if count.failures <= FAILURES_MAX:
            return None
        return max(1, round(count.since_s + WINDOW_S - now_s))


def network_of(address: str) -> str:
    """What one client can choose among: of IPv6 it usually has 64 bits to itself."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is None:
        return str(int(ip) >> _IPV6_HOST_BITS)
    return str(ip)
