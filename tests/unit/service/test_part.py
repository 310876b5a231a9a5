"""Parts: which processes an instance has, how each is called, and its share of what there is."""

from dataclasses import replace

from service.config import Config, RouteSettings
from service.part import Hop, Part, parts_of, share_of
from tests.unit.service.crew.scene import config_of

BY_PARTITION = RouteSettings(name="a", inputs=("a",), scope="partition")
BY_ADDRESS = RouteSettings(name="b", inputs=("b",))


def config(workers: int, *routes: RouteSettings) -> Config:
    return replace(config_of(workers), routes=routes)


def test_an_instance_has_a_process_for_each_worker_on_each_hop() -> None:
    alone = parts_of(config(3, BY_PARTITION))
    assert alone == tuple(Part(worker, Hop.INPUTS) for worker in range(3))
    both = parts_of(config(2, BY_PARTITION, BY_ADDRESS))
    assert both == tuple(Part(worker, hop) for worker in range(2) for hop in Hop)


def test_no_two_parts_have_one_name() -> None:
    parts = [Part(worker, hop) for worker in range(12) for hop in Hop]
    assert len({part.named("g-0") for part in parts}) == len(parts)
    assert Part().named("g-0") == "g-0-0", "the name of the only one stays over versions"


def test_workers_share_the_memory_of_their_instance() -> None:
    for workers, memory_mb in ((1, 256), (2, 128), (3, 85), (64, 4)):
        assert share_of(config(workers, BY_PARTITION)).service.cache_memory_mb == memory_mb


def test_what_decides_nothing_needs_no_memory() -> None:
    assert share_of(config(2, BY_ADDRESS)).service.cache_memory_mb == 128
    assert share_of(config(2, BY_ADDRESS, BY_PARTITION)).service.cache_memory_mb == 64
