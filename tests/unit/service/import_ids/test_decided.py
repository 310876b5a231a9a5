"""What is passed on and not decided yet is waited for before the ids of its input are adopted."""

from ringfence_service.config.tasks import Hop, Task
from ringfence_service.dedup.record import KnownId
from ringfence_service.errors import ExitCode
from ringfence_service.import_ids.decided import wait_until_decided
from ringfence_service.import_ids.reader import OffsetRange
from ringfence_service.import_ids.run import before_the_group
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.ids import ImportIds
from ringfence_state.model import PartitionId
from tests.fakes.clients import FakeClients
from tests.loop.test_two_hops import BY_ADDRESS, Hops
from tests.support.helpers import answer, ending
from tests.support.living import GROUP, Turning

INPUT = PartitionId("orders", 0)


def clients(hops: Hops, hop: Hop) -> FakeClients:
    return FakeClients(hops.living.cluster, GROUP, "adopt", part=Task(0, hop))


def decided_offsets(hops: Hops) -> dict[PartitionId, int]:
    committed = hops.living.cluster.group(BY_ADDRESS).committed
    return {source: each.offset for source, each in committed.items()}


def waited(hops: Hops, loop: Loop | None) -> float:
    """How long it took, in seconds, while this loop turns."""
    clock = Turning(hops.living, loop)
    started_s = clock.monotonic_s()
    wait_until_decided(clients(hops, Hop.ADDRESSES), BY_ADDRESS, clock)
    return clock.monotonic_s() - started_s


def test_a_record_on_its_way_is_decided_before_its_id_is_adopted() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.send(0, b"k", b"2")
    for _ in range(3):
        hops.carrying.turn()
    consumer = clients(hops, Hop.INPUTS).restorer()
    assert before_the_group(consumer, {INPUT: OffsetRange(0, 9)}) == {INPUT: OffsetRange(0, 2)}
    waited(hops, hops.deciding)
    past = (KnownId(b"1", 0, None), KnownId(b"2", 1, None))
    answer(ImportIds("k", *INPUT, past), hops.deciding)
    hops.turns()
    assert [record.value for record in hops.out("orders.unique")] == [b"1", b"2"]
    assert hops.out("orders.dlq") == []


def test_where_all_is_decided_nothing_is_waited_for() -> None:
    hops = Hops()
    assert waited(hops, None) < 1
    hops.send(0, b"k", b"1")
    hops.turns()
    ends = clients(hops, Hop.ADDRESSES).cluster.ends(decided := decided_offsets(hops))
    assert ends != decided  # the end of the transaction stands behind the record
    assert waited(hops, None) < 1


def test_what_comes_meanwhile_is_not_waited_for() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")

    class Sending(Turning):
        def sleep(self, seconds: float) -> None:
            hops.send(0, b"k", b"%f" % self.monotonic_s())
            hops.carrying.turn()
            super().sleep(seconds)

    for _ in range(3):
        hops.carrying.turn()
    wait_until_decided(
        clients(hops, Hop.ADDRESSES), BY_ADDRESS, Sending(hops.living, hops.deciding)
    )
    assert hops.out("orders.unique")[0].value == b"1"


def test_what_was_decided_and_deleted_meanwhile_is_no_fault() -> None:
    hops = Hops()
    for number in range(3):
        hops.send(0, b"k", b"%d" % number)
    for _ in range(3):
        hops.carrying.turn()

    class Sweeping(Turning):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 31)  # the second hop deletes what it has decided

    wait_until_decided(
        clients(hops, Hop.ADDRESSES), BY_ADDRESS, Sweeping(hops.living, hops.deciding)
    )
    assert len(hops.out("orders.unique")) == 3


def test_a_second_hop_that_stands_still_is_reported() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    for _ in range(3):
        hops.carrying.turn()
    with ending(ExitCode.BROKER, r"by-address-\d at 0 of \d"):
        waited(hops, None)


def test_a_topic_that_does_not_exist_holds_nothing() -> None:
    hops = Hops()
    wait_until_decided(clients(hops, Hop.ADDRESSES), "never.by-address", Turning(hops.living, None))
