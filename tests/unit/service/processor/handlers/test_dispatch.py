"""What the loop answers about addresses and ids, between two batches."""

from dataclasses import replace

import pytest

from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.errors import NotRestored
from ringfence_service.queries.ids import ClearAddress, IdAnswer, IdQuery
from tests.fakes.log import START_MS
from tests.simulation.disk import Disk
from tests.support.helpers import answer, answered
from tests.support.living import ORDERS, ROUTE, Living, turn_until_running

UNKNOWN = IdAnswer(known=False, sightings=(), complete=True)


def address(loop: Loop, name: str = "orders") -> AddressAnswer:
    return answered(AddressAnswer, AddressQuery(name), loop)


def sought(loop: Loop, identifier: str, name: str = "orders") -> IdAnswer:
    return answered(IdAnswer, IdQuery(name, identifier.encode()), loop)


def ring_of(size: int) -> dict[str, dict[str, object]]:
    return {"orders": {"id_cache_size": size}}


def test_an_address_tells_what_each_partition_remembers_of_it() -> None:
    living = Living(addresses=ring_of(5), partitions=2)
    living.send("a")
    living.cluster.now_ms += 70
    living.send("b")
    told = address(living.running())
    (ring,) = told.partitions  # the other partition remembers nothing
    assert (ring.topic, ring.partition) == ("orders", 0)
    assert (ring.ids_held, ring.capacity) == (2, 5)
    assert (ring.oldest_time_ms, ring.newest_time_ms) == (START_MS, START_MS + 70)
    assert ring.bytes > 0
    assert told.complete


def test_a_ring_that_was_cleared_has_none_before_it_is_full_again() -> None:
    living = Living(addresses=ring_of(2))
    living.send("a", "b", "c")
    loop = living.running()
    answer(ClearAddress("orders"), loop)
    for identifier, is_told in (("d", False), ("e", True)):
        living.send(identifier)
        loop.turn()
        (ring,) = address(loop).partitions
        assert (ring.horizon_ms is not None) == is_told
        loop.cache.drop(ORDERS)
        (ring,) = address(loop).partitions
        assert (ring.horizon_ms is not None) == is_told, "as its store tells it"


def test_a_setting_tells_the_pattern_that_gave_it() -> None:
    living = Living(addresses={"ord.#": {"id_cache_size": 1}, "#": {"on_duplicate": "drop"}})
    settings = address(living.running(), "ord.ers").settings
    assert settings["id_cache_size"] == (1, "ord.#")
    assert settings["on_duplicate"] == ("drop", "#")
    assert settings["process_expired"] == (True, "default")


def test_an_unknown_address_has_settings_and_remembers_nothing() -> None:
    living = Living(addresses=ring_of(5))
    living.send("a")
    loop = living.running()
    told = address(loop, "nobody")
    assert (told.address, told.partitions, told.complete) == ("nobody", (), True)
    assert told.settings["id_cache_size"] == (20_000, "default")
    assert sought(loop, "a", "nobody")._replace(settings=None) == UNKNOWN


def test_an_id_that_several_partitions_accepted_is_seen_in_each() -> None:
    living = Living(partitions=2)
    living.send("a", partition=0)
    living.send("a", partition=1)
    told = sought(living.running(), "a")
    assert sorted(seen.partition for seen in told.sightings) == [0, 1]


def test_addresses_are_kept_apart() -> None:
    living = Living(replace(ROUTE, address="{header:_DUPL_ID}"))
    living.send("a", "b")
    loop = living.running()
    assert sought(loop, "a", "a").known
    assert not sought(loop, "a", "b").known


def test_what_is_not_in_memory_is_loaded_and_let_go_of() -> None:
    living = Living(replace(ROUTE, address="{header:_DUPL_ID}"))
    living.send("a", "b")
    loop = living.running()
    loop.cache.drop(ORDERS)
    loop.cache.memory_bytes_max = 0
    for name, other in ("ab", "ba"):
        assert sought(loop, name, name).known
        assert loop.cache.look(ORDERS, name) is not None
        assert loop.cache.look(ORDERS, other) is None


def test_an_instance_that_does_not_own_every_partition_says_there_may_be_more() -> None:
    living = Living(partitions=2)
    living.send("a", partition=0)
    living.send("b", partition=1)
    ours = living.running()
    assert sought(ours, "b").complete
    theirs = living.loop("1", Disk(living.cluster.step))
    for _ in range(10):
        ours.turn()
        theirs.turn()
    assert [part.partition for part in address(ours).partitions] == [0]
    assert [part.partition for part in address(theirs).partitions] == [1]
    assert sought(ours, "b")._replace(settings=None) == UNKNOWN._replace(complete=False)
    assert not address(ours).complete
    assert sought(theirs, "b").known


def test_nothing_is_answered_before_every_partition_is_restored() -> None:
    living = Living(partitions=2)
    living.send("a")
    living.running().close()
    loop = living.loop("0", Disk(living.cluster.step))
    turn_until_running(loop)
    assert sought(loop, "a").known
    loop.assignment.retake(next(iter(loop.assignment.running)), wipe=False)
    for query in (AddressQuery("orders"), IdQuery("orders", b"a")):
        with pytest.raises(NotRestored):
            answer(query, loop)
    turn_until_running(loop)
    assert sought(loop, "a").known
