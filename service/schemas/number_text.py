"""Text of values that JSON has no form of its own for: floats, decimals and bytes.

Invariant: equal values give equal text, whatever the platform: an id is made of it.
"""

import base64
import struct
from collections.abc import Callable
from typing import Final

_SINGLE: Final[Callable[[float], bytes]] = struct.Struct("<f").pack


def double_text(value: float) -> str:
    """Return the shortest decimal text that is read as the same double."""
    return repr(value)


def single_text(value: float) -> str:
    """Return the shortest decimal text that is read as the same number of single precision."""
    packed = _SINGLE(value)
    for digits in range(1, 9):
        shorter = float(f"{value:.{digits}g}")
        if abs(shorter) < _SINGLE_MAX and _SINGLE(shorter) == packed:
            return repr(shorter)
    return repr(float(f"{value:.9g}"))


_SINGLE_MAX: Final = 3.4028235677973366e38
"""The first number that rounds to no finite one of single precision."""


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a number in plain digits, with all digits of its scale."""
    digits = str(abs(unscaled)).zfill(scale + 1)
    sign, point = "-" if unscaled < 0 else "", len(digits) - scale
    return f"{sign}{digits[:point]}.{digits[point:]}" if scale else f"{sign}{digits}"


def bytes_text(value: bytes) -> str:
    """Return bytes in Base64, as Kafka Connect and Protobuf's JSON have them."""
    return base64.b64encode(value).decode()
