"""Names of the internal topics."""

import hashlib
from typing import Final

NAME_LENGTH_MAX: Final = 249


def internal(group_id: str, kind: str) -> str:
    """The internal topic `<group_id>.<kind>`; too long a name is cut and ends in its hash."""
    name = f"{group_id}.{kind}"
    if len(name) <= NAME_LENGTH_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: NAME_LENGTH_MAX - len(digest) - 1]}-{digest}"


def acknowledgements(group_id: str) -> str:
    """Where the service says how far it has come with each publisher.

    Key: JSON `["address","publisher"]`; value: JSON `{"sequence":…,"bookmark":…}`, the highest
    number that is persisted, which covers all before it. To be read with read_committed.
    """
    return internal(group_id, "acks")
