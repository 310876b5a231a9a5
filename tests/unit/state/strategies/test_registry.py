"""A sixth strategy is one file and one line: here is one, and the loop runs it."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pytest

from ringfence.headers import Reason
from state.model import Claim, Origin, PartitionId, Rejection
from state.strategies import registry as table
from state.strategies.base import Strategy, StrategySettings
from state.strategies.per_publisher import PublisherPosition, PublisherStrategy
from tests.support.living import Living
from tests.unit.state.strategies.kept import SOURCE, Kept


class Rising:
    """Lets an id pass iff it is above the last one."""

    kind = b"t"
    evicts = False
    is_cumulative = False

    def claims(self, claim: Claim) -> bool:
        return claim.identifier is not None

    def room(self, _settings: StrategySettings) -> int:
        return 1

    def verdict(
        self, known: bytes | None, claim: Claim, _source: PartitionId, _settings: StrategySettings
    ) -> Rejection | None:
        if known is not None and (claim.identifier or b"") <= known:
            return Rejection(Reason.DUPLICATE, f"it is not above {known!r}")
        return None

    def accepted(
        self, _known: bytes | None, claim: Claim, _origin: Origin, _settings: StrategySettings
    ) -> bytes:
        return claim.identifier or b""

    def entry_at(
        self, _claim: Claim, _origin: Origin, _settings: StrategySettings, _missing: Iterable[int]
    ) -> bytes:
        return b""

    def standing(self, entry: bytes) -> PublisherPosition:
        return PublisherPosition(len(entry))

    def pack(self, entry: bytes) -> bytes:
        return entry

    def unpack(self, value: bytes) -> bytes:
        return value


@pytest.fixture
def _with_a_sixth(monkeypatch: pytest.MonkeyPatch) -> None:
    strategies: Mapping[str, Strategy] = {**table.STRATEGIES, "toy": PublisherStrategy(Rising())}
    for module in (
        "state.strategies.registry",
        "service.dedup.address",
        "service.processor.transaction",
        "service.processor.handlers.dispatch",
    ):
        monkeypatch.setattr(f"{module}.STRATEGIES", MappingProxyType(strategies))


@pytest.mark.usefixtures("_with_a_sixth")
def test_a_sixth_strategy_decides_and_is_there_after_a_restart() -> None:
    living = Living()
    settings = living.config.addresses.settings("orders")
    object.__setattr__(settings, "strategy", "toy")
    living.send("a", "b", "a")
    living.running().close()
    living.stores.wipe(PartitionId("orders", 0))  # the changelog alone tells
    living.send("b", "c")
    living.running()
    assert living.values("orders.unique") == ["a", "b", "c"]
    assert living.values("orders.dlq") == ["a", "b"]


@pytest.mark.parametrize("strategy", table.STRATEGIES)
def test_what_is_accepted_is_counted_and_takes_memory(strategy: str) -> None:
    held, found = Kept(strategy), list[int]()
    for name in "PQ":
        held.decide([Claim(name.encode(), None, name, 1, 0, 0)])
        assert held.accepted == {SOURCE: 1}
        found.append(held.memory.memory_bytes)
    assert found == [found[0], 2 * found[0]]
    assert found[0] > 0


def test_every_strategy_has_keys_of_its_own() -> None:
    kinds = [strategy.kind for strategy in table.STRATEGIES.values()]
    assert len(set(kinds)) == len(kinds)
    assert all(kind.islower() and len(kind) == 1 for kind in kinds)
