"""One address under one strategy, with what a changelog holds of it, which survives a restart."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ringfence_client.headers import Reason
from ringfence_service.config.addresses import AddressSettings
from ringfence_state.model import Claim, Origin, PackedPositions, PartitionId
from ringfence_state.strategies.base import CommittedState, Draft
from ringfence_state.strategies.registry import STRATEGIES, check

SOURCE: Final = PartitionId("orders", 1)
ADDRESS: Final = "a.b"


class Kept:
    """One address under one strategy; `entries` are what a changelog holds."""

    def __init__(self, strategy: str, **settings: Any) -> None:
        self.strategy = strategy
        self.settings = AddressSettings(strategy=strategy, **settings)
        self.entries: dict[bytes, bytes] = {}
        self.memory: CommittedState
        self.restart()
        self.offset = 0
        self.accepted: Mapping[PartitionId, int] = {}
        """How many of the last batch, by where they came from."""

    def restart(self, **settings: Any) -> None:
        """Begin again from what a changelog holds, with these settings in place of the former."""
        self.settings = replace(self.settings, **settings)
        self.memory = STRATEGIES[self.strategy].load(sorted(self.entries.items()))

    def decide(
        self,
        claims: Iterable[Claim],
        times_ms: Sequence[int] | None = None,
        *,
        committed: bool = True,
        source: PartitionId = SOURCE,
    ) -> list[Reason | None]:
        """The verdicts on a batch, of which each came at a time, or at its offset."""
        draft, verdicts = self.begun(source), list[Reason | None]()
        for row, claim in enumerate(claims):
            offset = self.offset + row
            at = Origin(*source, offset, offset if times_ms is None else times_ms[row])
            why = draft.verdict(claim, at)
            if why is None:
                draft.remember(claim, at)
            elif why.reason is Reason.DUPLICATE:
                draft.repeated(claim, at)
            verdicts.append(None if why is None else why.reason)
        self.offset += len(verdicts)
        self.accepted = draft.accepted()
        if committed:
            self.write(draft)
        return verdicts

    def begun(self, source: PartitionId = SOURCE) -> Draft:
        """The draft of a batch."""
        return self.memory.begin(self.settings, PackedPositions(source))

    def write(self, draft: Draft) -> None:
        """Commit a draft."""
        change = draft.change(ADDRESS)
        if change is None:
            return
        for key, value in change.edits:
            if value is None:
                del self.entries[key]
            else:
                check(key, value)
                self.entries[key] = value
        self.memory.apply(change.content)
