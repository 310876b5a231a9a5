"""Claim: what the headers of a record say of it: an id, when it expires, or nothing."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ringfence.headers import DUPLICATE_ID, DUPLICATE_ID_ALIASES, EXPIRES_AT, ID_BYTES_MAX, Reason
from service.rejection import RejectedError
from service.route import Headers

_READ: Final = DUPLICATE_ID_ALIASES | {EXPIRES_AT}
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,18}")


class Claim(NamedTuple):
    """What a record says of itself; an id of None means that it names none."""

    identifier: bytes | None
    expires_at_ms: int | None


NO_CLAIM: Final = Claim(None, None)


def read_claim(headers: Headers) -> Claim:
    """What the headers claim. Of several with one name the first counts, null is absent."""
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in _READ and value is not None:
            found.setdefault(name, value)
    if not found:
        return NO_CLAIM
    expires = found.pop(EXPIRES_AT, None)
    if expires is not None and not _MILLISECONDS.fullmatch(expires):
        raise RejectedError(Reason.INVALID_CLAIM, f"{EXPIRES_AT} is no number of milliseconds")
    ids = set(found.values())
    if len(ids) > 1:
        raise RejectedError(Reason.INVALID_CLAIM, f"{' and '.join(sorted(found))} differ")
    identifier = ids.pop() if ids else None
    if identifier is not None and len(identifier) > ID_BYTES_MAX:
        cause = f"the id has {len(identifier)} bytes; at most {ID_BYTES_MAX} are allowed"
        raise RejectedError(Reason.INVALID_CLAIM, cause)
    return Claim(identifier, None if expires is None else int(expires))


def plain_ids(records: Iterable[Headers | None]) -> list[bytes | None]:
    """For each record its id, where one header of ours says it all; else `read_claim` looks."""
    found: list[bytes | None] = []
    add = found.append
    for headers in records:
        if headers is not None and len(headers) == 1:  # the usual case
            ((name, value),) = headers
            is_id = name == DUPLICATE_ID or name in DUPLICATE_ID_ALIASES
            add(value if is_id and value is not None and len(value) <= ID_BYTES_MAX else None)
        else:
            add(_plain_id(headers or ()))
    return found


def _plain_id(headers: Headers) -> bytes | None:
    found = None
    for name, value in headers:
        if name in _READ:
            if found is not None or value is None or name == EXPIRES_AT:
                return None
            found = value
    return found if found is None or len(found) <= ID_BYTES_MAX else None
