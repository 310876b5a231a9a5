"""Parts: which processes an instance has, how each is called, and its share of what there is."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.tasks import Hop, Task, consumer_group, share_of, tasks_of
from tests.unit.service.supervisor.scene import config_of

NAMES = st.text("ab0-_.", min_size=1, max_size=4)
"""Characters that a group and an instance may have, those that join names among them."""
PARTS = st.builds(Task, st.integers(0, 11), st.sampled_from(Hop))
BY_PARTITION = RouteSettings(name="a", inputs=("a",), scope="partition")
BY_ADDRESS = RouteSettings(name="b", inputs=("b",))


def config(workers: int, *routes: RouteSettings) -> Config:
    return replace(config_of(workers), routes=routes)


def test_an_instance_has_a_process_for_each_worker_on_each_hop() -> None:
    alone = tasks_of(config(3, BY_PARTITION))
    assert alone == tuple(Task(worker, Hop.INPUTS) for worker in range(3))
    both = tasks_of(config(2, BY_PARTITION, BY_ADDRESS))
    assert both == tuple(Task(worker, hop) for worker in range(2) for hop in Hop)


@given(st.lists(st.tuples(NAMES, NAMES, PARTS), unique=True, min_size=2))
@example([("orders", "eu-ringfence-0", Task()), ("orders-eu", "ringfence-0", Task())])
def test_no_two_processes_in_a_cluster_have_one_transactional_id(
    processes: list[tuple[str, str, Task]],
) -> None:
    ids = [part.transactional_id(group, instance) for group, instance, part in processes]
    assert len(set(ids)) == len(processes)
    for name, (group, _, _) in zip(ids, processes, strict=True):
        assert name.startswith(group), "rights are granted by this prefix"


@given(NAMES, st.lists(st.tuples(NAMES, PARTS), unique=True, min_size=2))
def test_no_two_members_of_a_group_have_one_name(
    group: str, members: list[tuple[str, Task]]
) -> None:
    named = {
        (consumer_group(group, part.hop), part.member_id(group, instance))
        for instance, part in members
    }
    assert len(named) == len(members)


def test_the_name_of_a_member_is_the_same_in_every_version() -> None:
    assert Task().member_id("g", "0") == "g-0-0"
    assert Task(2, Hop.ADDRESSES).member_id("g", "a") == "g-a-2-by-address"


def test_workers_share_the_memory_of_their_instance() -> None:
    for workers, memory_mb in ((1, 256), (2, 128), (3, 85), (64, 4)):
        assert share_of(config(workers, BY_PARTITION)).service.cache_memory_mb == memory_mb


def test_what_decides_nothing_needs_no_memory() -> None:
    assert share_of(config(2, BY_ADDRESS)).service.cache_memory_mb == 128
    assert share_of(config(2, BY_ADDRESS, BY_PARTITION)).service.cache_memory_mb == 64
