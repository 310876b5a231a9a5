"""Strategy registry: every strategy by its configuration value."""

from collections.abc import Mapping
from typing import Final

from ringfence_state import pending_group, redrive_progress
from ringfence_state.keys import UnknownFormatError
from ringfence_state.store import Store
from ringfence_state.strategies.audit import AuditRule
from ringfence_state.strategies.base import Replayed, Strategy
from ringfence_state.strategies.ordered import OrderedRule
from ringfence_state.strategies.per_publisher import NumberStrategy
from ringfence_state.strategies.ring_memory import RingStrategy
from ringfence_state.strategies.sequence import SequenceRule
from ringfence_state.strategies.window import WindowStrategy

DEFAULT: Final = "ring"
STRATEGIES: Final[Mapping[str, Strategy]] = {
    DEFAULT: RingStrategy("id_cache_size"),
    "window": WindowStrategy(),
    "audit": NumberStrategy(AuditRule()),
    "sequence": NumberStrategy(SequenceRule()),
    "ordered": NumberStrategy(OrderedRule()),
    "off": RingStrategy(size_key=""),
}


def kinds() -> tuple[bytes, ...]:
    """Return the kinds of keys that strategies write, each once."""
    return tuple(dict.fromkeys(strategy.kind for strategy in STRATEGIES.values()))


def check(key: bytes, value: bytes) -> None:
    """Raise UnknownFormatError for an entry that this version did not write."""
    if key[:1] == pending_group.KIND:
        pending_group.check(key, value)
        return
    if key[:1] == redrive_progress.KIND:
        redrive_progress.check(key, value)
        return
    for strategy in STRATEGIES.values():
        if strategy.kind == key[:1]:
            strategy.check(key, value)
            return
    raise UnknownFormatError(key[:64].hex())


def replayed(store: Store) -> list[Replayed]:
    """Return what is to see the changelog of a store while it is replayed."""
    found = (
        strategy.forms.replayed(store) for strategy in STRATEGIES.values() if strategy.size_key
    )
    return [each for each in found if each is not None]
