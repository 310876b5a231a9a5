"""Claim: what a message says of itself: an id, or a publisher with a number, or nothing."""

from typing import Final, NamedTuple


class Claim(NamedTuple):
    """What is not said is None."""

    identifier: bytes | None = None
    expires_at_ms: int | None = None
    publisher: str | None = None
    number: int | None = None
    stream: int | None = None
    previous: int | None = None


NO_CLAIM: Final = Claim()
