"""A fault of the broker is waited for and shown; nothing is dead-lettered for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from tests.broker.world import World
from tests.waiting import eventually
from tools.broker import secured
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port
from tools.broker.node import Machine

pytestmark = pytest.mark.broker

SMALL = Machine(heap_mb=512, short_lived=True)
EVERYTHING = AclOperation.ALL
WRITING = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.WRITE)


@pytest.fixture
def world(broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]) -> Iterator[World]:
    with World(broker.client_properties, tmp_path, topic_name("fault"), count=1500) as own:
        yield own


@pytest.mark.row(24)
def test_a_missing_output_topic_is_waited_for(world: World) -> None:
    world.create(world.input, world.letters)
    world.send(700)
    service = world.service(free_port(0))
    service.start()
    service.wait_complaint(world.output)
    world.create(world.output)
    world.send()
    world.wait_decided()
    service.wait_ready()
    service.stop()
    world.verify()


REVOKED: Final = {"input": 0, "group": 3, "transactional id": 4, "output": -1}
"""Places in `rights`."""


def rights(world: World) -> list[AclBinding]:
    """What the service needs, and more than it needs, save on the output."""
    user, allow = f"User:{secured.SERVICE}", AclPermissionType.ALLOW
    wide = [
        (ResourceType.TOPIC, world.input, EVERYTHING),
        (ResourceType.TOPIC, world.letters, EVERYTHING),
        (ResourceType.TOPIC, f"{world.group}.", EVERYTHING),
        (ResourceType.GROUP, world.group, EVERYTHING),
        (ResourceType.TRANSACTIONAL_ID, world.group, EVERYTHING),
        *((ResourceType.TOPIC, world.output, each) for each in WRITING),
    ]
    pattern = ResourcePatternType.PREFIXED
    return [AclBinding(kind, name, pattern, user, "*", what, allow) for kind, name, what in wide]


@pytest.mark.row(24)
@pytest.mark.row(25)
@pytest.mark.parametrize("place", REVOKED.values(), ids=REVOKED)
def test_a_revoked_right_is_waited_for(
    secured_broker: Broker, tmp_path: Path, topic_name: Callable[[str], str], place: int
) -> None:
    client = secured_broker.client_properties
    service_client = {**client, **secured.client_properties(secured.SERVICE)}
    group = topic_name("acl")
    with World(client, tmp_path, group, count=800, service_client=service_client) as world:
        world.create()
        admin = AdminClient(dict(client))
        granted = rights(world)
        for done in admin.create_acls(granted).values():
            done.result(timeout=30)
        world.send(400)
        service = world.service(free_port(0))
        service.start()
        world.wait_decided()
        right = granted[place]
        revoked = AclBindingFilter(
            right.restype,
            right.name,
            right.resource_pattern_type,
            right.principal,
            right.host,
            right.operation,
            right.permission_type,
        )
        for gone in admin.delete_acls([revoked]).values():
            gone.result(timeout=30)
        eventually(lambda: not admin.describe_acls(revoked).result(10))
        world.send()
        service.wait_complaint("AUTHORIZATION")
        for done in admin.create_acls([right]).values():
            done.result(timeout=30)
        world.wait_decided()
        service.wait_ready()
        service.stop()
        world.verify()
