"""The console of a fleet: whichever instance shows it, it is the whole group's."""

import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from selenium.webdriver import Chrome

from ringfence_client.headers import DUPLICATE_ID
from tests.broker.service import Service
from tests.broker.workload import PARTITIONS, Record
from tests.broker.world import Manner, World
from tests.browser.seen import BROWSER, every, figures, link, one, redrive, texts, until, wait_for
from tests.support.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import free_port
from tools.pictures.browser import complaints

pytestmark = BROWSER
IDS = 5
"""On each partition, and each twice."""
INSTANCES = ("0", "1", "2")
WHY = "a shop asked at another door"


class Replica(NamedTuple):
    """One instance, and where its console is."""

    service: Service
    url: str


def work() -> list[tuple[int, Record]]:
    """Ids, and then a copy of each."""
    known = [
        (
            partition,
            Record(
                key=None,
                value=b"x",
                headers=(("addr", b"a"), (DUPLICATE_ID, f"id-{partition}-{number}".encode())),
                timestamp_ms=1_700_000_000_000,
            ),
        )
        for partition in range(PARTITIONS)
        for number in range(IDS)
    ]
    return known + known


@pytest.fixture
def fleet(broker: Broker, tmp_path: Path) -> Iterator[list[Replica]]:
    """Three instances that share the partitions, with dead letters."""
    token = tmp_path / "peer-token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    manner = Manner(api=f'peer_token_file = "{token}"')
    group = f"fleet-{uuid.uuid4().hex[:12]}"
    with World(broker.client_properties, tmp_path, group, work=work(), manner=manner) as world:
        world.create()
        world.send()
        found = []
        for name in INSTANCES:
            port = free_port(0)
            found.append(Replica(world.service(port, name), f"http://127.0.0.1:{port}"))
        for each in found:
            each.service.start()
        world.wait_decided()
        services = [each.service for each in found]
        eventually(lambda: all(map(is_settled, services)), *services)
        yield found


def is_settled(service: Service) -> bool:
    """Whether it is ready, and knows of three that share the partitions."""
    if service.get("/readyz")[0] != 200:
        return False
    status, text = service.get("/v1/instances")
    told = json.loads(text) if status == 200 else {"instances": ()}
    owned = [each["partitions_owned"] for each in told["instances"]]
    return len(owned) == len(INSTANCES) and all(owned)


def test_a_fleet_is_one_service_in_every_console(fleet: list[Replica], driver: Chrome) -> None:
    for name, each in zip(INSTANCES, fleet, strict=True):
        driver.get(each.url + "/console/partitions")
        wait_for(driver, lambda name=name: is_whole(driver, name))  # type: ignore[misc]
        assert texts(driver, "[aria-label=Workers] tbody tr"), "its own processes"
        assert complaints(driver) == []

    first, second, third = fleet
    count = first.url + "/console/redrives/count?reason=duplicate"
    until(driver, count, lambda: every(driver, "input[value=forget]"))
    redrive(driver, WHY)
    wait_for(driver, lambda: every(driver, "svg.bar.long"))

    driver.get(second.url + "/console/redrives")
    wait_for(driver, lambda: WHY in one(driver, "tbody").text)

    def is_clicked() -> bool:  # the page may replace the link just then
        link(driver, texts(driver, "tbody th")[0]).click()
        return True

    wait_for(driver, is_clicked)
    wait_for(driver, lambda: one(driver, ".head .phase").text == "done")
    assert figures(driver)["Accepted"] == str(PARTITIONS * IDS)

    driver.get(first.url + "/console/partitions")
    third.service.signal(signal.SIGKILL)
    third.service.wait()
    wait_for(driver, lambda: "unreachable" in one(driver, "[aria-label=Instances]").text)
    # By itself, as who watches sees it.
    wait_for(driver, lambda: sorted(set(owners(driver).values())) == ["0", "1"])
    wait_for(driver, lambda: len(owners(driver)) == PARTITIONS)


def is_whole(driver: Chrome, name: str) -> bool:
    """Whether the page shows the owners of all partitions, and all instances at work."""
    owned = owners(driver)
    rows = {row.split()[0]: row for row in texts(driver, "[aria-label=Instances] tbody tr")}
    return (
        len(owned) == PARTITIONS
        and set(owned.values()) == set(INSTANCES)
        and list(rows) == list(INSTANCES)
        and [who for who, row in rows.items() if "this one" in row] == [name]
        and all("running" in row for row in rows.values())
    )


def owners(driver: Chrome) -> dict[str, str]:
    """Which instance owns each partition, as the page tells it."""
    names = texts(driver, "[aria-label=Partitions] tbody th")
    told = texts(driver, "[aria-label=Partitions] tbody td:nth-child(2)")
    return dict(zip(names, told, strict=True))
