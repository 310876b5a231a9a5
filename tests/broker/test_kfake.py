"""The service on kfake, the broker of franz-go, which shares no code with Apache Kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.conftest import NewWorld
from tests.broker.desk import Desk
from tests.broker.service import ringfence
from tests.broker.world import Manner
from tools.broker.kfake import KFAKE, Kfake
from tools.go import GoMissingError

pytestmark = [
    pytest.mark.broker,
    pytest.mark.xdist_group("kfake"),  # one process builds it
]

MESSAGES = 100_000
NOT_COORDINATOR, COORDINATOR_LOADING, NOT_ENOUGH_REPLICAS, CONCURRENT = 16, 14, 19, 51
PRODUCE, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT = 0, 22, 24, 26, 28


@pytest.fixture(scope="module")
def _kfake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kfake]:
    try:
        KFAKE.binary()
    except GoMissingError as missing:
        pytest.skip(str(missing))
    with Kfake(tmp_path_factory.mktemp("kfake")) as broker:
        yield broker


@pytest.fixture
def kfake(_kfake: Kfake) -> Kfake:
    """A broker that a test may kill."""
    _kfake.start()
    return _kfake


def test_a_hundred_thousand_messages_have_one_fate_each_while_both_sides_go_away(
    kfake: Kfake, new_world: NewWorld
) -> None:
    """The service is killed, and kfake ends amid transactions, which it writes down.

    A killed kfake is not exact itself: it writes the markers of a commit partition by partition
    without a decision before them, and no marker for a transaction that a crash has aborted, so
    that the next commit of the same producer commits it too.
    """
    manner = Manner(batch_records=1000)
    world = new_world(kfake.client_properties, count=MESSAGES, manner=manner)
    world.send()
    service = world.started()
    for share in (0.2, 0.4, 0.6, 0.8):
        world.wait_decided(int(MESSAGES * share))
        service.kill()
        service.start()
        world.wait_decided(int(MESSAGES * (share + 0.1)))
        kfake.restart()
    world.conclude(service)


def test_check_and_the_service_accept_kfake(kfake: Kfake, tmp_path: Path) -> None:
    with Desk(kfake.client_properties, tmp_path, "kfake-desk") as desk:
        desk.create()
        done = ringfence("check", "--probe", "--config", str(desk.config()))
        assert done.returncode == 0, done.stdout + done.stderr
        (warning,) = done.stderr.splitlines()
        assert "does not report message.timestamp.before.max.ms" in warning
        desk.send(b"1", b"2", b"1")
        desk.serve_to_end()
        assert (desk.count(desk.output), desk.count(desk.letters)) == (2, 1)


def test_errors_of_every_request_of_a_transaction_are_waited_out(
    kfake: Kfake, new_world: NewWorld
) -> None:
    kfake.restart()
    world = new_world(kfake.client_properties)
    kfake.fail([INIT_PRODUCER_ID], COORDINATOR_LOADING, 2)
    service = world.started()
    world.send(1000)
    world.wait_decided()
    kfake.fail([ADD_PARTITIONS], CONCURRENT, 2)
    kfake.fail([PRODUCE], NOT_ENOUGH_REPLICAS, 2, topic=world.output)
    kfake.fail([TXN_OFFSET_COMMIT], COORDINATOR_LOADING, 2)
    kfake.fail([END_TXN], NOT_COORDINATOR, 2)
    world.send()
    world.wait_decided()
    assert kfake.failed() == [2] * 5
    world.conclude(service)
