"""Both hops on one cluster, one loop each, as the processes of an instance run them."""

from dataclasses import replace

import pytest
from confluent_kafka import murmur2

from ringfence_client.headers import DUPLICATE_ID, NUMBER, PUBLISHER, DeadLetter
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.tasks import Hop, Task
from ringfence_service.dedup.record import KnownId
from ringfence_service.errors import ExitCode
from ringfence_service.metadata.session_service import SessionService
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.ids import IdAnswer, IdQuery, ImportIds
from ringfence_service.queries.publishers import PublisherAnswer, PublisherQuery, SetSequence
from ringfence_state.model import NO_CLAIM, PartitionId
from tests.fakes.clients import FakeClients
from tests.fakes.partition import Record
from tests.simulation.disk import Disk
from tests.support.helpers import answer, answered, ending, some
from tests.support.living import GROUP, Living, Turning, turn_until_running

ROUTE = RouteSettings(name="orders", inputs=("orders",), address="{key}", output="orders.unique")
WIDE = 3
BY_ADDRESS = f"{GROUP}.by-address"


class Hops:
    """One instance with both of its processes."""

    def __init__(self, route: RouteSettings = ROUTE, **settings: object) -> None:
        own = {"partitions": WIDE, "by_address_partitions": 2, **settings}
        self.living = Living(route, **own)  # type: ignore[arg-type]  # by name
        self.carrying = self.loop(Hop.INPUTS)
        self.deciding = self.loop(Hop.ADDRESSES)
        turn_until_running(self.carrying)
        turn_until_running(self.deciding)

    def loop(self, hop: Hop) -> Loop:
        living = self.living
        clients = FakeClients(living.cluster, GROUP, "0", part=Task(0, hop))
        stores = Disk(living.cluster.step)
        return Loop(living.config, clients, stores, living.clock, living.watch, living.retry_policy)

    def send(self, partition: int, key: bytes, identifier: bytes) -> None:
        name = (DUPLICATE_ID, identifier)
        self.living.write(identifier, name, key=key, partition=partition)

    def turns(self, count: int = 4) -> None:
        for _ in range(count):
            self.carrying.turn()
            self.deciding.turn()

    def out(self, topic: str) -> list[Record]:
        return [r for n in range(WIDE) for r in self.living.cluster.records(topic, n)]


def test_a_duplicate_on_another_partition_is_caught() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.send(2, b"k", b"1")
    hops.turns()
    assert [record.value for record in hops.out("orders.unique")] == [b"1"]
    (letter,) = hops.out("orders.dlq")
    assert dict(letter.headers or [])[DeadLetter.ORIGINAL] == b"orders-0@0"


def test_the_first_hop_commits_in_the_group_and_the_second_in_one_of_its_own() -> None:
    hops = Hops()
    hops.send(1, b"k", b"1")
    hops.turns()
    assert hops.living.committed(PartitionId("orders", 1)) == 1
    decided = hops.living.cluster.group(BY_ADDRESS).committed
    assert decided[PartitionId(BY_ADDRESS, murmur2(b"k", 2))].offset == 1


def test_a_partition_whose_records_are_only_carried_has_nothing_to_restore() -> None:
    carrying = Hops().carrying.assignment.running.values()
    assert [each.restored_records for each in carrying] == [0] * WIDE


def test_by_address_whose_records_expire_is_refused() -> None:
    living = Living(ROUTE, partitions=WIDE, by_address_partitions=2)
    living.cluster.create_topic(BY_ADDRESS, 2)
    clients = FakeClients(living.cluster, GROUP, "0", part=Task(0, Hop.ADDRESSES))
    loop = Loop(
        living.config, clients, living.stores, living.clock, living.watch, living.retry_policy
    )
    with ending(ExitCode.CONTRADICTION, r"set its retention\.ms to -1"):
        turn_until_running(loop)


def test_what_is_decided_is_deleted_and_nothing_else() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.carrying.turn()
    hops.living.clock.sleep(31)
    hops.deciding.turn()
    log = some(hops.living.cluster.log(BY_ADDRESS, murmur2(b"k", 2)))
    assert log.start == 1
    hops.send(0, b"k", b"2")
    hops.carrying.turn()
    hops.living.clock.sleep(31)
    assert log.start == 1
    hops.turns()
    assert [record.value for record in hops.out("orders.unique")] == [b"1", b"2"]


def test_an_offset_that_was_reset_by_hand_ends_the_start_unless_it_is_allowed() -> None:
    hops = Hops()
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.carrying.close()
    committed = hops.living.cluster.group(GROUP).committed
    committed[PartitionId("orders", 0)] = committed[PartitionId("orders", 0)]._replace(metadata="")
    carrying = hops.loop(Hop.INPUTS)
    with ending(ExitCode.CONTRADICTION, "reset by hand"):
        turn_until_running(carrying)
    living = hops.living
    service = replace(living.config.service, on_reset_offset="keep_state")
    living.config = replace(living.config, service=service)
    turn_until_running(hops.loop(Hop.INPUTS))


def test_a_record_that_is_read_again_after_a_reset_is_a_duplicate_of_itself() -> None:
    hops = Hops(on_reset_offset="keep_state")
    hops.send(0, b"k", b"1")
    hops.turns()
    hops.carrying.close(leaves=True)
    committed = hops.living.cluster.group(GROUP).committed
    source = PartitionId("orders", 0)
    committed[source] = committed[source]._replace(offset=0, metadata="")
    hops.carrying = hops.loop(Hop.INPUTS)
    hops.turns(12)
    assert [record.value for record in hops.out("orders.unique")] == [b"1"]
    (letter,) = hops.out("orders.dlq")
    told = dict(letter.headers or [])
    assert told[DeadLetter.OFFSET] == b"0"
    assert told[DeadLetter.ORIGINAL] == b"orders-0@0"


def test_an_id_is_imported_and_found_on_the_partition_of_its_address() -> None:
    hops = Hops()
    change = ImportIds("k", "orders", 2, (KnownId(b"1", 5, None),))
    with pytest.raises(NotPossible):
        answer(change, hops.carrying)
    answer(change, hops.deciding)
    found = answered(IdAnswer, IdQuery("k", b"1"), hops.deciding)
    (sighting,) = found.sightings
    assert (sighting.topic, sighting.partition, sighting.offset) == ("orders", 2, 5)
    hops.send(0, b"k", b"1")
    hops.turns()
    (letter,) = hops.out("orders.dlq")
    assert dict(letter.headers or [])[DeadLetter.ORIGINAL] == b"orders-2@5"


def test_stamps_are_imported_where_the_address_is_decided_that_they_belong_to() -> None:
    hops = Hops()
    stamp = b"cluster/orders/0/7"
    keys = [b"k%d" % number for number in range(8)]
    for key in keys:
        change = ImportIds(f"BRIDGE.{key.decode()}", "orders", 0, (KnownId(stamp, 7, None),))
        answer(change, hops.deciding)
        hops.send(1, key, stamp)
    hops.turns()
    assert (len(hops.out("orders.unique")), len(hops.out("orders.dlq"))) == (0, len(keys))


def test_nothing_is_imported_from_what_is_no_partition_of_an_input() -> None:
    hops = Hops()
    with pytest.raises(NotPossible):
        answer(ImportIds("k", "another", 0, (KnownId(b"1", 5, None),)), hops.deciding)


def test_a_hop_decides_for_its_own_partitions_alone() -> None:
    hops = Hops()
    assert (hops.carrying.decides, hops.deciding.decides) == (False, True)
    hops.carrying.close(leaves=True)
    hops.deciding.close(leaves=True)
    living, plain = hops.living, PartitionId("plain", 0)
    route = RouteSettings(name="plain", inputs=("plain",), scope="partition", output="{input}.out")
    living.config = replace(living.config, routes=(*living.config.routes, route))
    living.cluster.create_topic("plain")
    carrying, deciding = hops.loop(Hop.INPUTS), hops.loop(Hop.ADDRESSES)
    turn_until_running(carrying)
    turn_until_running(deciding)
    assert carrying.decides
    assert carrying.decider("k", plain)(NO_CLAIM) is carrying.assignment.running[plain]
    assert deciding.decider("k", plain)(NO_CLAIM) is None


def test_a_publisher_whose_number_is_set_goes_on_on_its_partition() -> None:
    hops = Hops(addresses={"#": {"strategy": "sequence"}})
    answer(SetSequence("P", "k", 4, None, "orders", 1), hops.deciding)
    for partition, number in ((1, 4), (1, 5), (2, 6)):
        headers = ((PUBLISHER, b"P"), (NUMBER, b"%d" % number))
        hops.living.write(b"%d" % number, *headers, key=b"k", partition=partition)
        hops.turns()
    assert [record.value for record in hops.out("orders.unique")] == [b"5"]
    told = answered(PublisherAnswer, PublisherQuery("P"), hops.deciding)
    (place,) = told.positions
    assert (place.topic, place.partition, place.number) == ("orders", 1, 5)
    answer(SetSequence("P", "k", 9), hops.deciding)


def test_a_session_is_given_out_when_both_hops_go_by_it() -> None:
    hops = Hops(addresses={"#": {"strategy": "sequence"}})
    living = hops.living
    config = living.config

    def clients(hop: Hop) -> FakeClients:
        return FakeClients(living.cluster, GROUP, "admin", part=Task(0, hop))

    only_one = SessionService(config, clients, Turning(living, hops.carrying))
    with pytest.raises(Unavailable, match="by-address"):
        only_one.open("P", "me")
    both = SessionService(config, clients, Turning(living, hops.deciding))
    assert both.open("P", "me").epoch == 2


def test_where_nothing_was_decided_yet_it_begins_at_the_beginning_whatever_the_inputs_do() -> None:
    hops = Hops(on_missing_offset="latest")
    hops.deciding.close()
    hops.send(0, b"k", b"1")
    hops.carrying.turn()
    hops.deciding = hops.loop(Hop.ADDRESSES)
    hops.turns(8)
    assert [record.value for record in hops.out("orders.unique")] == [b"1"]
