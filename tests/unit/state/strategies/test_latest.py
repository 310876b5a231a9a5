"""The strategy `latest` through the loop, the API, the console and the command line."""

from ringfence.headers import DUPLICATE_ID, PUBLISHER
from state.model import Claim, PartitionId
from tests.support.living import Living
from tests.unit.state.strategies.kept import Kept

NEW = None


def sent(publisher: str, name: str) -> Claim:
    return Claim(name.encode(), None, publisher, None, None, None)


def test_an_id_is_a_duplicate_of_the_last_one_of_its_publisher_only() -> None:
    held = Kept("latest")
    batch = [sent("P", "a"), sent("P", "a"), sent("Q", "a"), sent("P", "b"), sent("P", "a")]
    assert held.decide(batch) == [NEW, "duplicate", NEW, NEW, NEW]
    held.restart()
    assert held.decide([sent("P", "a"), sent("Q", "a"), sent("Q", "b")]) == [
        "duplicate",
        "duplicate",
        NEW,
    ]


def test_a_long_id_is_held_by_its_hash() -> None:
    held = Kept("latest")
    assert held.decide([sent("P", "x" * 100), sent("P", "x" * 100)]) == [NEW, "duplicate"]


def test_the_loop_decides_by_it_and_restores_it_from_the_changelog() -> None:
    living = Living(addresses={"orders": {"strategy": "latest"}})

    def send(ids: str) -> None:
        for name in ids:
            living.write(name.encode(), (DUPLICATE_ID, name.encode()), (PUBLISHER, b"P"))

    send("aaba")
    living.running().close()
    living.stores.wipe(PartitionId("orders", 0))  # the changelog alone tells
    send("ab")
    living.running()
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert living.values("orders.dlq") == ["a", "a"]
