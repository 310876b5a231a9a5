"""What one remembered that was killed is taken over, with an empty disk and with a copy."""

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.service import wait_shared
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker


def test_what_was_remembered_is_taken_over_with_an_empty_disk_and_with_its_own_copy(
    broker: Broker, new_world: NewWorld
) -> None:
    world = new_world(broker.client_properties, count=5000)
    world.send(4000)
    first = world.started()
    world.wait_decided()
    second = world.started("1", volume="empty")
    wait_shared(first, second)
    first.kill()
    second.wait_ready()
    replayed = second.restored
    assert min(replayed) > 0
    first.start()
    wait_shared(first, second)
    # Fewer than the changelog records that a copy spares, however they are put into transactions.
    world.send(20)
    world.wait_decided()
    second.kill()
    first.wait_ready()
    assert sum(first.restored) < sum(replayed) / 2, "its own copy spares the restore"
    world.conclude(first)
