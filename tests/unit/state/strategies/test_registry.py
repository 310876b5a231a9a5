"""A sixth strategy is one file and one line: here is one, and the loop runs it."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from ringfence_client.headers import DUPLICATE_ID, PUBLISHER, Reason
from ringfence_state.model import Claim, Origin, PartitionId, Rejection
from ringfence_state.strategies import registry as table
from ringfence_state.strategies.base import Strategy, StrategySettings
from ringfence_state.strategies.per_publisher import PublisherStrategy
from tests.support.living import Living
from tests.unit.state.strategies.kept import SOURCE, Kept
from tools.source_roots import SOURCE_ROOTS

ROOT: Final = Path(table.__file__).parents[2]
NAMES: Final = [name for name in table.STRATEGIES if name != "off"]


class LatestRule:
    """An id is a duplicate only of the newest one that its publisher got through."""

    kind = b"t"
    size_key = "publishers_max"
    publisher_headers = frozenset({PUBLISHER})
    required_headers: tuple[str, ...] = ()
    identity = None
    evicts = True

    def claims(self, claim: Claim) -> bool:
        return claim.identifier is not None and claim.publisher is not None

    def verdict(
        self, known: bytes | None, claim: Claim, _source: PartitionId, _settings: StrategySettings
    ) -> Rejection | None:
        if claim.identifier == known:
            return Rejection(Reason.DUPLICATE, "its publisher sent this id before it")
        return None

    def accepted(
        self, _known: bytes | None, claim: Claim, _origin: Origin, _settings: StrategySettings
    ) -> bytes:
        return claim.identifier or b""

    def pack(self, entry: bytes) -> bytes:
        return entry

    def unpack(self, value: bytes) -> bytes:
        return value


@pytest.fixture
def _with_a_sixth(monkeypatch: pytest.MonkeyPatch) -> None:
    strategies = cast("dict[str, Strategy]", table.STRATEGIES)
    monkeypatch.setitem(strategies, "latest", PublisherStrategy(LatestRule()))


def send(living: Living, ids: str) -> None:
    for name in ids:
        living.write(name.encode(), (DUPLICATE_ID, name.encode()), (PUBLISHER, b"P"))


@pytest.mark.usefixtures("_with_a_sixth")
def test_a_sixth_strategy_decides_and_is_there_after_a_restart() -> None:
    living = Living()
    settings = living.config.addresses.settings("orders")
    object.__setattr__(settings, "strategy", "latest")
    send(living, "aaba")
    living.running().close()
    living.stores.wipe(PartitionId("orders", 0))  # the changelog alone tells
    send(living, "ab")
    living.running()
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert living.values("orders.dlq") == ["a", "a"]


@pytest.mark.parametrize("strategy", NAMES)
def test_what_is_accepted_is_counted_and_listed_and_takes_memory(strategy: str) -> None:
    held, found = Kept(strategy), list[int]()
    for name in "PQ":
        held.decide([Claim(name.encode(), None, name, 1, 0, 0)])
        assert held.accepted == {SOURCE: 1}
        found.append(held.memory.memory_bytes)
        ids = [b"P", b"Q"][: len(found)] if table.STRATEGIES[strategy].holds_ids else []
        assert held.memory.ids_held == len(ids)
        stored = table.STRATEGIES[strategy].held_ids(sorted(held.entries.items()), held.settings)
        assert [each.identifier for each in stored] == ids
    assert found == [found[0], 2 * found[0]]
    assert found[0] > 0


def test_every_strategy_has_keys_of_its_own() -> None:
    kinds = [table.STRATEGIES[name].kind for name in NAMES]
    assert len(set(kinds)) == len(kinds)
    assert table.STRATEGIES["off"].kind == table.STRATEGIES[table.DEFAULT].kind
    assert all(kind.islower() and len(kind) == 1 for kind in kinds)


def names_of_strategies(source: str) -> Iterator[int]:
    """The lines that compare a strategy with a name, or that list two names or more."""
    names = table.STRATEGIES.keys()
    for node in ast.walk(ast.parse(source)):
        few = 1
        match node:
            case ast.Compare() | ast.Match() if "strategy" in ast.unparse(node):
                parts, few = list(ast.walk(node)), 0
            case ast.Dict():
                parts = [key for key in node.keys if key is not None]
            case ast.Set() | ast.Tuple() | ast.List():
                parts = [*node.elts]
            case ast.Call(func=ast.Attribute(attr="isin")):
                parts = [*node.args]
            case _:
                continue
        texts = {str(each.value) for each in parts if isinstance(each, ast.Constant)}
        if len(names & texts) > few:
            yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        'a = settings.strategy == "ring"',
        'match settings.strategy:\n    case "window":\n        pass',
        '_WITH_IDS = frozenset({"ring", "window"})',
        '_SIZES = {"ring": "id_cache_size", "window": "window_size"}',
        'numbered = column.isin("audit", "sequence")',
    ],
)
def test_a_strategy_that_is_asked_for_by_its_name_is_found(source: str) -> None:
    assert list(names_of_strategies(source)) == [1]


def test_nothing_outside_their_folder_asks_for_a_strategy_by_its_name() -> None:
    own = ROOT / "state" / "ringfence_state" / "strategies"
    for package in SOURCE_ROOTS:
        for file in sorted((ROOT / package).rglob("*.py")):
            found = (
                [] if own in file.parents else list(names_of_strategies(file.read_text("utf-8")))
            )
            assert not found, f"{file}:{found}: ask for a capability of Strategy"
