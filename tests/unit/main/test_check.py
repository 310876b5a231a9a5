"""What check says of a broker that answers, and what inputs make of it."""

import resource
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from ringfence_main.check import CheckReport, certificate_warnings, descriptor_warnings, report_of
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import (
    ApiSettings,
    Config,
    RouteSettings,
    SchemaRegistrySettings,
    Scope,
    ServiceSettings,
)
from ringfence_service.errors import ConfigIssue
from ringfence_service.kafka.coordinator_topics import OFFSETS, TRANSACTIONS, CoordinatorTopic
from tests.fakes.admin import FakeAdmin
from tests.fakes.log import KEPT, FakeCluster
from tests.fakes.rights import FakeRights
from tests.fakes.schema_registry import FakeRegistry

ROUTE = RouteSettings(name="orders", inputs=("orders",), scope="partition")
ROOMY = 2 << 20
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}


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
    report = report_of(config, FakeAdmin(cluster), FakeRights(cluster))
    return [str(problem) for problem in report.problems]


def test_a_cluster_that_has_everything_has_no_problem() -> None:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    report = report_of(config_of(ROUTE), FakeAdmin(cluster), FakeRights(cluster))
    assert report == CheckReport((), ("orders",), ("orders.dlq", "orders.unique"))


def test_all_problems_come_at_once_each_with_its_fix() -> None:
    routes = (
        ROUTE,
        RouteSettings(name="all", inputs=("^z.*",), scope="partition"),
        replace(ROUTE, inputs=("b",)),
    )
    found = problems(cluster_with("orders"), config_of(*routes))
    assert len(found) == 4
    assert all("; " in problem for problem in found)
    for part in ("orders.unique", "orders.dlq", '"b"', '"all"'):
        assert any(part in problem for problem in found)


def test_targets_that_will_be_made_are_not_missed() -> None:
    assert problems(cluster_with("orders"), config_of(ROUTE, create_topics=True)) == []


BY_ADDRESS = RouteSettings(name="orders", inputs=("orders",))
OWN = ("by-address", "changelog.by-address")


@pytest.mark.parametrize(
    ("partitions", "policy", "part"),
    [
        (12, "delete", None),
        (6, "delete", "by_address_partitions = 6"),
        (12, "compact", "policy to delete"),
    ],
)
def test_what_decides_by_address_is_as_wide_as_configured_and_deleted_from_behind(
    partitions: int, policy: str, part: str | None
) -> None:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    cluster.create_topic(
        "g.by-address",
        partitions,
        record_bytes_max=ROOMY,
        cleanup_policy=policy,
        retention=FOR_EVER,
    )
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == (0 if part is None else 1)
    assert all(part in problem for problem in found if part)


def test_a_changelog_that_no_route_needs_is_no_matter() -> None:
    cluster = with_changelog(1, "delete")
    assert problems(cluster, config_of(BY_ADDRESS)) == []


def with_changelog(partitions: int, policy: str) -> FakeCluster:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    cluster.create_topic(
        "g.changelog.orders", partitions, record_bytes_max=ROOMY, cleanup_policy=policy
    )
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


def test_a_limit_that_the_service_may_not_raise_for_larger_inputs_is_reported() -> None:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    for name in OWN:
        policy = "compact" if "changelog" in name else "delete"
        cluster.create_topic(
            f"g.{name}", 12, record_bytes_max=ROOMY, cleanup_policy=policy, retention=FOR_EVER
        )
    assert problems(cluster, config_of(BY_ADDRESS)) == []
    del cluster.logs["orders"]
    cluster.create_topic("orders", 3, record_bytes_max=5 << 20)
    assert problems(cluster, config_of(BY_ADDRESS)) == [], "the service raises it"
    cluster.denied = {(f"g.{name}", "ALTER_CONFIGS") for name in OWN}
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == 2
    assert all("set its max.message.bytes to 5308416" in problem for problem in found)


def complete(*names: str) -> FakeCluster:
    """A cluster on which the service has been before."""
    cluster = cluster_with("orders", "orders.unique", "orders.dlq", *names)
    for name in ("g.changelog.by-address", "g.config"):
        cluster.create_topic(name, 12, record_bytes_max=ROOMY, cleanup_policy="compact")
    for name in ("g.by-address", "g.dead-letters"):
        cluster.create_topic(name, 12, record_bytes_max=ROOMY, retention=FOR_EVER)
    return cluster


@pytest.mark.parametrize(
    ("kind", "name", "operation"),
    [
        ("topic", "orders", "READ"),
        ("topic", "orders", "DESCRIBE_CONFIGS"),
        ("topic", "orders.unique", "WRITE"),
        ("topic", "orders.dlq", "DESCRIBE_CONFIGS"),
        ("topic", "g.changelog.by-address", "READ"),
        ("topic", "g.by-address", "DELETE"),
        ("topic", "g.dead-letters", "WRITE"),
        ("group", "g", "READ"),
        ("group", "g.by-address", "READ"),
    ],
)
def test_a_right_that_is_not_granted_is_named_with_its_fix(
    kind: str, name: str, operation: str
) -> None:
    cluster = complete()
    config = config_of(BY_ADDRESS)
    assert problems(cluster, config) == []
    cluster.denied = {(f"group {name}" if kind == "group" else name, operation)}
    found = report_of(config, FakeAdmin(cluster), FakeRights(cluster)).problems
    assert found == (
        ConfigIssue(
            f'{operation} on the {kind} "{name}" is not granted',
            f"grant {operation} on {kind} {name} to the user that the service connects as",
        ),
    )


@pytest.mark.parametrize(
    ("name", "made", "part"),
    [
        ("by-address", {"retention": {**FOR_EVER, "retention.ms": "604800000"}}, "retention.ms to"),
        ("by-address", {"retention": {**FOR_EVER, "retention.bytes": "1"}}, "retention.bytes to"),
        ("by-address", {"cleanup_policy": "compact,delete"}, "cleanup.policy to delete"),
        (
            "by-address",
            {"settings": {"message.timestamp.type": "LogAppendTime"}},
            "it to CreateTime",
        ),
        ("changelog.by-address", {"cleanup_policy": "delete"}, "cleanup.policy to compact"),
        (
            "changelog.by-address",
            {"cleanup_policy": "compact,delete", "retention": KEPT},
            "retention.ms to -1",
        ),
        (
            "changelog.by-address",
            {"settings": {"delete.retention.ms": "0"}},
            "delete.retention.ms to 604800000",
        ),
        ("changelog.by-address", {"cleanup_policy": "compact,delete"}, None),
    ],
)
def test_internal_topics_with_settings_that_lose_something_are_named(
    name: str, made: Mapping[str, Any], part: str | None
) -> None:
    cluster = complete()
    policy = "compact" if "changelog" in name else "delete"
    described = {"cleanup_policy": policy, "retention": FOR_EVER, **made}
    cluster.create_topic(f"g.{name}", 12, record_bytes_max=ROOMY, **described)
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == (0 if part is None else 1)
    assert all(f"g.{name}" in problem and (part or "") in problem for problem in found)


def test_an_input_without_describe_permission_is_not_reported_as_missing() -> None:
    cluster = complete()
    cluster.denied = {("orders", "DESCRIBE")}
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == 3
    for operation, problem in zip(("DESCRIBE", "DESCRIBE_CONFIGS", "READ"), found, strict=True):
        assert problem.startswith(f'{operation} on the topic "orders" is not granted')


def test_an_internal_topic_that_is_missing_and_may_not_be_created_is_reported() -> None:
    cluster = complete()
    del cluster.logs["g.by-address"]
    cluster.denied = {("g.by-address", "CREATE"), ("g.config", "CREATE")}
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == 1
    assert "grant CREATE on topic g.by-address" in found[0]


def test_the_user_of_the_file_is_named() -> None:
    cluster = complete()
    cluster.denied = {("orders", "READ")}
    kafka = KafkaSettings({"sasl.username": "svc"}, {}, {}, {})
    found = problems(cluster, replace(config_of(BY_ADDRESS), kafka=kafka))
    assert [problem.endswith("to User:svc.") for problem in found] == [True]


def test_an_output_that_takes_less_than_its_input_is_no_problem() -> None:
    cluster = complete()
    cluster.create_topic("orders.unique", 3, record_bytes_max=1000)
    cluster.create_topic("orders.dlq", 3, record_bytes_max=1000)
    assert problems(cluster, config_of(BY_ADDRESS)) == []


def test_the_dead_letters_of_the_group_have_to_take_what_no_other_topic_takes() -> None:
    cluster = complete()
    cluster.create_topic("g.dead-letters", record_bytes_max=1000)
    cluster.denied = {("g.dead-letters", "ALTER_CONFIGS")}
    found = problems(cluster, config_of(BY_ADDRESS))
    assert len(found) == 1
    assert '"g.dead-letters" has max.message.bytes 1000; set' in found[0]


def test_transactions_are_no_longer_than_the_broker_lets_them_be() -> None:
    cluster, config = complete(), config_of(BY_ADDRESS)
    for max_ms, count in ((None, 0), (10_000, 0), (9_999, 1)):
        rights = FakeRights(cluster, transaction_max_ms=max_ms)
        assert len(report_of(config, FakeAdmin(cluster), rights).problems) == count


def test_a_certificate_of_the_api_that_has_expired_is_worth_a_warning(tmp_path: Path) -> None:
    path, now = tmp_path / "api.pem", datetime.now(UTC)
    for age, warnings in ((timedelta(days=2), 1), (timedelta(0), 0)):
        end = now - age + timedelta(days=1)
        issued = trustme.CA().issue_cert("localhost", not_before=now - age, not_after=end)
        issued.cert_chain_pems[0].write_to_path(str(path))
        assert len(list(certificate_warnings(ApiSettings(tls_cert_file=str(path))))) == warnings


def test_what_the_brokers_cannot_keep_for_their_coordinators_is_a_problem() -> None:
    cluster = complete()
    cluster.denied = {("group g", "READ")}
    for name in (OFFSETS, TRANSACTIONS):
        rights = FakeRights(cluster)
        rights.coordinators = [
            CoordinatorTopic(name, exists=False, replicas=3, min_isr=1, brokers=1)
        ]
        found = report_of(config_of(BY_ADDRESS), FakeAdmin(cluster), rights).problems
        assert f"{name} cannot be created" in found[0].what
        # Without a coordinator nobody knows the rights on groups, and asking takes long.
        assert len(found) == (1 if name == OFFSETS else 2)


def test_a_registry_that_a_route_needs_is_asked_for_a_sign_of_life() -> None:
    cluster = cluster_with("orders", "orders.unique", "orders.dlq")
    registry = FakeRegistry()
    registry.start()
    settings = SchemaRegistrySettings(registry.url)
    needed = replace(config_of(replace(ROUTE, id="{schema:/id}")), schema_registry=settings)
    assert problems(cluster, needed) == []
    assert registry.requests == ["/schemas/types"]
    registry.stop()
    (problem,) = problems(cluster, needed)
    assert problem.startswith(f"cannot read schemas from the schema registry at {registry.url}")
    assert problems(cluster, replace(config_of(ROUTE), schema_registry=settings)) == []


@pytest.mark.parametrize(
    ("limit", "scope", "expected"),
    [
        (64, "partition", ["the hard limit of open files is 64 here"]),
        (639, "partition", ["the hard limit of open files is 639 here"]),
        (640, "partition", []),
        (1024, "address", ["may have 3,456"]),
        (3456, "address", []),
        (resource.RLIM_INFINITY, "address", []),
    ],
)
def test_a_limit_of_open_files_that_the_stores_may_exceed_is_warned_of(
    limit: int, scope: Scope, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(
        KafkaSettings({}, {}, {}, {}),
        ServiceSettings(group_id="g", by_address_partitions=12),
        ApiSettings(),
        (RouteSettings(name="orders", inputs=("orders",), scope=scope),),
        AddressBook.of({}),
    )
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, limit))
    found = list(descriptor_warnings(config))
    assert len(found) == len(expected)
    assert all(part in sentence for part, sentence in zip(expected, found, strict=True))


def test_topics_that_expressions_find_are_compared_too() -> None:
    routes = (
        RouteSettings(name="all", inputs=("^in.*",), dead_letter="dead.{topic}", scope="partition"),
        RouteSettings(
            name="more",
            inputs=("^x.*",),
            output="dead.in{topic}",
            dead_letter="y",
            scope="partition",
        ),
    )
    (problem,) = problems(cluster_with("inx1", "x1"), config_of(*routes, create_topics=True))
    assert '"dead.inx1" is the dead-letter topic of "inx1" and the output of "x1"' in problem
    assert problems(cluster_with("inx2", "x1"), config_of(*routes, create_topics=True)) == []
