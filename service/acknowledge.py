"""Acknowledge: what publishers are told: how far they are decided, in the same transaction.

One record for each publisher that was heard of, duplicates included. A number covers all before
it; who reads committed records only sees it together with the outputs.
"""

import json
from collections.abc import Iterable

from ringfence.headers import bookmark
from ringfence.topics import acknowledgements
from service.place import Place
from service.plan import Output
from state.strategies.publishers import PublishersDraft


def acknowledged(group_id: str, places: Iterable[Place], now_ms: int) -> list[Output]:
    """The records for the addresses of one transaction."""
    topic = acknowledgements(group_id)
    found: list[Output] = []
    for place in places:
        if not isinstance(place.draft, PublishersDraft):
            continue
        for publisher, number in place.draft.covered().items():
            told = {"sequence": number, "bookmark": bookmark(publisher, number).decode()}
            key, value = _text([place.name, publisher]), _text(told)
            found.append((topic, value, key, 0, None, None, now_ms, []))
    return found


def _text(told: object) -> bytes:
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
