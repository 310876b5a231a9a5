"""Letter tally: dead letters counted by reason, address, topic and hour."""

from collections import Counter
from typing import Final

from service.letter_values import DeadLetterView, LetterCounts

ADDRESSES_TOLD: Final = 100
OTHER: Final = "_other"
NONE: Final = "_none"
_HOUR_MS: Final = 3_600_000


class LetterTally:
    """What is counted of dead letters."""

    def __init__(self) -> None:
        self._matched = self._foreign = 0
        self._reasons = Counter[str]()
        self._addresses = Counter[str]()
        self._topics = Counter[str]()
        self._hours_ms = Counter[int]()

    def add(self, view: DeadLetterView) -> None:
        """One more."""
        if view.reason is None:
            self._foreign += 1
            return
        self._matched += 1
        self._reasons[view.reason] += 1
        self._addresses[NONE if view.address is None else view.address] += 1
        self._topics[view.place.topic] += 1
        self._hours_ms[view.time_ms // _HOUR_MS * _HOUR_MS] += 1

    def counts(self, scanned: int, place: object | None) -> LetterCounts:
        """All of it; of many addresses those with most."""
        addresses = dict(self._addresses.most_common(ADDRESSES_TOLD))
        others = self._matched - sum(addresses.values())
        if others:
            addresses[OTHER] = addresses.get(OTHER, 0) + others
        return LetterCounts(
            scanned=scanned,
            matched=self._matched,
            foreign=self._foreign,
            by_reason=dict(self._reasons),
            by_address=addresses,
            by_topic=dict(self._topics),
            by_hour_ms=dict(self._hours_ms),
            place=place,
        )
