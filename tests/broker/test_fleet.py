"""Many instances, one API: any of them answers for all, and changes what another one owns."""

import signal
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ringfence_client.headers import DUPLICATE_ID
from tests.broker.conftest import NewWorld
from tests.broker.service import Service
from tests.broker.workload import PARTITIONS, Record
from tests.broker.world import Manner
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

IDS = 10
"""On each partition, of the address a."""
INSTANCES = 3


def id_of(partition: int, number: int) -> str:
    return f"id-{partition}-{number}"


def work() -> list[tuple[int, Record]]:
    """Ids that are known on one partition each."""
    return [
        (
            partition,
            Record(
                key=None,
                value=b"x",
                headers=(("addr", b"a"), (DUPLICATE_ID, id_of(partition, number).encode())),
                timestamp_ms=1_700_000_000_000,
            ),
        )
        for partition in range(PARTITIONS)
        for number in range(IDS)
    ]


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path, new_world: NewWorld) -> list["Replica"]:
    """Three instances that share the partitions, and know of each other."""
    token = tmp_path / "peer-token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    # What is asked while one is gone takes less than its session.
    manner = Manner(api=f'peer_token_file = "{token}"', session_ms=15_000)
    world = new_world(broker.client_properties, work=work(), manner=manner)
    world.send()
    found = [Replica(name, world.started(name)) for name in "012"]
    world.wait_decided()
    services = [each.service for each in found]
    eventually(lambda: all(each.is_settled(len(found)) for each in found), *services)
    return found


class Replica(NamedTuple):
    """One instance, asked over HTTP."""

    name: str
    service: Service

    def change(self, path: str, body: object = None, method: str = "POST") -> tuple[Any, bool]:
        """What is answered, once all are heard; and whether nothing can have been done before."""
        first = self.service.ask(path, body, method)
        if first.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
            return first.document, True
        return self.service.told(path, body, method), False

    def whole(self, path: str) -> Any:
        """What all instances tell together; one that is busy is late, and is left out."""
        told = []

        def is_whole() -> bool:
            told.append(self.service.told(path))
            return bool(told[-1]["complete"])

        eventually(is_whole, self.service)
        return told[-1]

    def knows(self, partition: int, number: int) -> dict[str, Any]:
        told: dict[str, Any] = self.whole(f"/v1/addresses/a/ids/{id_of(partition, number)}")
        return told

    def is_settled(self, instances: int) -> bool:
        if not self.service.is_ready:
            return False
        told = self.service.told("/v1/instances")
        owned = [each["partitions_owned"] for each in told["instances"]]
        return told["complete"] and len(owned) == instances and all(owned)


def test_any_instance_answers_and_changes_for_all_and_knows_who_left(fleet: list[Replica]) -> None:
    find(fleet)
    change(fleet)
    clear(fleet)
    leave(fleet)


def find(fleet: list[Replica]) -> None:
    """An id is found whichever instance is asked."""
    for replica in fleet:
        for partition in range(PARTITIONS):
            told = replica.knows(partition, 3)
            assert (told["known"], told["complete"]) == (True, True)
            assert [seen["partition"] for seen in told["sightings"]] == [partition]
            assert replica.knows(partition, IDS)["known"] is False
        page = replica.whole("/v1/addresses/a/ids?page_size=1000")
        assert (len(page["ids"]), page["complete"]) == (IDS * PARTITIONS, True)
        shared = replica.whole("/v1/partitions")
        assert shared["complete"] is True
        assert [each["partition"] for each in shared["partitions"]] == list(range(PARTITIONS))
        assert {each["instance"] for each in shared["partitions"]} == {"0", "1", "2"}
        own = replica.service.told("/v1/partitions?scope=instance")
        assert {each["instance"] for each in own["partitions"]} == {replica.name}
        assert own["complete"] is False


def change(fleet: list[Replica]) -> None:
    """A change takes effect at its owner."""
    for partition, replica in enumerate([*fleet, fleet[0]]):
        path = f"/v1/addresses/a/ids/{id_of(partition, 5)}"
        told, at_once = replica.change(path, method="DELETE")
        assert told["complete"]
        assert told["ids"] == 1 or not at_once
        assert [each.knows(partition, 5)["known"] for each in fleet] == [False] * INSTANCES
        assert replica.change(path, method="DELETE")[0]["ids"] == 0
    for partition, replica in enumerate([*fleet, fleet[0]]):
        topic = replica.whole("/v1/partitions")["partitions"][0]["topic"]
        ids = {"topic": topic, "partition": partition, "ids": [{"id": id_of(partition, 5)}]}
        told, _ = replica.change("/v1/addresses/a/ids:import", ids)
        assert told["ids"] == 1
        assert [each.knows(partition, 5)["known"] for each in fleet] == [True] * INSTANCES


def clear(fleet: list[Replica]) -> None:
    """All that is forgotten at once is counted over all instances."""
    cleared, at_once = fleet[1].change("/v1/addresses/a:clear")
    assert cleared["complete"]
    places = (IDS + 1) * PARTITIONS  # an id that was deleted leaves its place in the ring
    assert cleared["ids"] == places or not at_once
    assert not any(each.knows(0, 3)["known"] for each in fleet)


def leave(fleet: list[Replica]) -> None:
    """Who leaves in order is announced no more."""
    stays = fleet[0]
    fleet[2].service.stop()

    def are_two() -> bool:
        told = stays.service.told("/v1/instances")["instances"]
        return [each["instance"] for each in told] == ["0", "1"]

    eventually(are_two, stays.service)
    eventually(lambda: stays.is_settled(2), stays.service)
    assert stays.knows(3, 3)["complete"] is True


def test_while_an_instance_is_gone_answers_are_a_part_and_whole_after_the_takeover(
    fleet: list[Replica],
) -> None:
    stays, _, goes = fleet
    own = goes.service.told("/v1/partitions?scope=instance")["partitions"]
    lost = [each["partition"] for each in own]
    goes.service.kill()
    told = stays.service.told(f"/v1/addresses/a/ids/{id_of(lost[0], 3)}")
    assert (told["known"], told["complete"]) == (False, False)
    refusal = stays.service.ask("/v1/addresses/a:clear", method="POST")
    assert refusal.status == 503, refusal
    assert "nothing was changed" in refusal.document["detail"]
    assert "Instance 2 does not answer" in refusal.document["detail"]
    (gone,) = [i for i in stays.service.told("/v1/instances")["instances"] if i["instance"] == "2"]
    assert (gone["reachable"], gone["partitions_owned"]) == (False, None)

    def is_found_again() -> bool:
        answer = stays.service.ask(f"/v1/addresses/a/ids/{id_of(lost[0], 3)}")
        found = answer.document
        return answer.status == 200 and found["known"] and found["complete"]

    eventually(is_found_again, stays.service)
    for each in fleet[:2]:
        each.service.stop()


def test_an_instance_whose_broker_is_silent_ends_without_taking_its_announcement_away(
    own_broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(own_broker.client_properties, work=work())
    world.send()
    alone = world.started()
    world.wait_decided()
    alone.wait_ready()
    eventually(world.is_announced, alone)
    own_broker.suspend()
    try:
        alone.signal(signal.SIGTERM)
        assert alone.wait(30) == 0, alone.tail()
    finally:
        own_broker.resume()
