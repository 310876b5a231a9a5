"""What check says of a broker that answers, and what inputs make of it."""

from dataclasses import replace

import pytest

from service.addresses import AddressBook
from service.check import report_of
from service.config import ApiSettings, Config, KafkaSettings, RouteSettings, ServiceSettings
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import FakeCluster

ROUTE = RouteSettings(name="orders", inputs=("orders",))


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def config_of(*routes: RouteSettings, create_topics: bool = False) -> Config:
    service = ServiceSettings(group_id="g", create_topics=create_topics)
    return Config(KafkaSettings({}, {}, {}, {}), service, ApiSettings(), routes, AddressBook.of({}))


def cluster_with(*names: str, partitions: int = 3) -> FakeCluster:
    cluster = FakeCluster()
    for name in names:
        cluster.create_topic(name, partitions)
    return cluster


def problems(cluster: FakeCluster, config: Config) -> list[str]:
    return [str(problem) for problem in report_of(config, FakeAdmin(cluster)).problems]


def test_a_cluster_that_has_everything_has_no_problem() -> None:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    report = report_of(config_of(ROUTE), FakeAdmin(cluster))
    assert report == ((), ("orders",), ("orders.dlq", "orders.unique"))


def test_all_problems_come_at_once_each_with_its_mend() -> None:
    routes = (ROUTE, RouteSettings(name="all", inputs=("^z.*",)), replace(ROUTE, inputs=("b",)))
    found = problems(cluster_with("orders"), config_of(*routes))
    assert len(found) == 4
    assert all("; " in problem for problem in found)
    for part in ("orders.unique", "orders.dlq", '"b"', '"all"'):
        assert any(part in problem for problem in found)


def test_targets_that_will_be_made_are_not_missed() -> None:
    assert problems(cluster_with("orders"), config_of(ROUTE, create_topics=True)) == []


def with_changelog(partitions: int, policy: str) -> FakeCluster:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    cluster.create_topic("g.changelog.orders", partitions, cleanup_policy=policy)
    return cluster


@pytest.mark.parametrize(
    ("partitions", "policy", "part"),
    [
        (3, "compact", None),
        (4, "compact", None),
        (2, "compact", "partitions"),
        (3, "delete", "compact"),
    ],
)
def test_a_changelog_must_be_compacted_and_wide_enough(
    partitions: int, policy: str, part: str | None
) -> None:
    found = problems(with_changelog(partitions, policy), config_of(ROUTE))
    assert len(found) == (0 if part is None else 1)
    assert part is None or part in found[0]


def test_partitions_that_will_be_added_are_no_problem() -> None:
    keep = replace(ROUTE, on_partitions_added="keep")
    assert problems(with_changelog(2, "compact"), config_of(keep)) == []
