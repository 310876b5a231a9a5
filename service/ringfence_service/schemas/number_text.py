"""Number text: the text of floats, decimals and bytes, for which JSON prescribes no form.

Invariant: equal values give equal text on every platform, since ids are made from it.
"""

import base64
import struct
from collections.abc import Callable
from typing import Final

_SINGLE: Final[Callable[[float], bytes]] = struct.Struct("<f").pack


def double_text(value: float) -> str:
    """Return the shortest decimal text that reads back as the same double."""
    return repr(value)


def single_text(value: float) -> str:
    """Return the shortest decimal text that reads back as the same single-precision number."""
    packed = _SINGLE(value)
    for digits in range(1, 9):
        shorter = float(f"{value:.{digits}g}")
        if abs(shorter) < _SINGLE_MAX and _SINGLE(shorter) == packed:
            return repr(shorter)
    return repr(float(f"{value:.9g}"))


_SINGLE_MAX: Final = 3.4028235677973366e38
"""The smallest number that does not round to a finite number of single precision."""


def decimal_text(unscaled: int, scale: int) -> str:
    """Return a decimal in plain digits, with `scale` digits after the point."""
    digits = str(abs(unscaled)).zfill(scale + 1)
    sign, point = "-" if unscaled < 0 else "", len(digits) - scale
    return f"{sign}{digits[:point]}.{digits[point:]}" if scale else f"{sign}{digits}"


def bytes_text(value: bytes) -> str:
    """Return bytes as Base64, as in the JSON of Kafka Connect and Protobuf."""
    return base64.b64encode(value).decode()
