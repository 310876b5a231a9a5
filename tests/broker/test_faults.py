"""A fault of the broker is waited for and shown; nothing is dead-lettered for it."""

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from tests.broker.conftest import NewWorld
from tests.broker.rights import Administrator, documented
from tools.broker import secured
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


@pytest.mark.row(24)
def test_a_missing_output_topic_is_waited_for(broker: Broker, new_world: NewWorld) -> None:
    world = new_world(broker.client_properties, count=1500)
    world.output += "-late"
    world.send(700)
    service = world.started()
    service.wait_complaint(world.output)
    world.create(world.output)
    world.conclude(service)


REVOKED = {
    "input": (ResourceType.TOPIC, "-in", AclOperation.READ, "may not be read"),
    "group": (ResourceType.GROUP, "", AclOperation.READ, "GROUP_AUTHORIZATION"),
    "transactional id": (
        ResourceType.TRANSACTIONAL_ID,
        "",
        AclOperation.WRITE,
        "TRANSACTIONAL_ID_AUTHORIZATION",
    ),
    "output": (ResourceType.TOPIC, "-out", AclOperation.WRITE, "may not be written"),
}


@pytest.mark.row(24)
@pytest.mark.row(25)
@pytest.mark.parametrize(("kind", "end", "operation", "words"), REVOKED.values(), ids=REVOKED)
def test_a_revoked_right_is_waited_for(
    secured_broker: Broker,
    new_world: NewWorld,
    kind: ResourceType,
    end: str,
    operation: AclOperation,
    words: str,
) -> None:
    client = secured_broker.client_properties
    service_client = {**client, **secured.client_properties(secured.SERVICE)}
    world = new_world(client, count=800, service_client=service_client)
    granted = documented(world.group, reads=[world.input], writes=[world.output, world.letters])
    revoked = (kind, world.group + end, operation)
    right = next(r for r in granted if (r.restype, r.name, r.operation) == revoked)
    administrator = Administrator(secured_broker)
    administrator.grant(granted)
    world.send(400)
    service = world.started()
    world.wait_decided()
    administrator.revoke(right)
    world.send()
    service.wait_complaint(words)
    administrator.grant([right])
    world.conclude(service)
