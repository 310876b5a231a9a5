"""What a command goes by that has only the file of a service: what the service itself goes by."""

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from ringfence_main.check import report_in_effect
from ringfence_service.config.load import load_lenient
from ringfence_service.config.validation import invalid_routes
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.effective_config import EffectiveConfig, in_effect
from ringfence_service.metadata.settings import SettingsOverlay
from tests.fakes.errors import plain
from tests.fakes.rights import FakeRights
from tests.support.living import GROUP, Living
from tests.unit.service.processor.test_active_settings import put

TOPIC = config_topic(GROUP)
PAYMENTS: dict[str, object] = {"inputs": ["payments.in"], "output": "payments", "scope": "address"}
SET = SettingsOverlay({"payments": PAYMENTS}, {"payments.#": {"id_cache_size": 7}})


def served(living: Living) -> EffectiveConfig:
    return in_effect(living.config, living.clients("command"), living.clock)


def test_what_was_set_over_rest_overrides_the_file_and_nothing_is_written() -> None:
    living = Living()
    assert served(living)[:2] == EffectiveConfig(living.config)[:2]
    put(living, SET)
    fenced = living.faults.passed["init_transactions"]
    config, fault, _ = served(living)
    assert [route.name for route in config.routes] == ["orders", "payments"]
    assert config.addresses.settings("payments.in").id_cache_size == 7
    assert fault is None
    assert living.faults.passed["init_transactions"] == fenced > 0


def test_a_file_that_manages_itself_and_a_group_that_never_ran_are_alone() -> None:
    living = Living(managed_by="file")
    put(living, SET)
    assert served(living)[:2] == EffectiveConfig(living.config)[:2]
    new = Living()
    del new.cluster.logs[TOPIC]
    assert served(new) == EffectiveConfig(new.config)
    assert TOPIC not in new.cluster.logs


def test_check_reports_on_what_is_in_effect() -> None:
    living = Living()
    put(living, SET)
    clients, rights = living.clients("command"), FakeRights(living.cluster)
    report = report_in_effect(living.config, clients, rights, living.clock)
    assert 'the input "payments.in" of route "payments" does not exist' in {
        problem.what for problem in report.problems
    }


@pytest.mark.parametrize("managed_by", ["rest", "file"])
def test_check_reports_a_route_that_contradicts_its_first_start(managed_by: str) -> None:
    living = Living(managed_by=managed_by)
    (route,) = living.config.routes
    clients, rights = living.clients("command"), FakeRights(living.cluster)
    changed = replace(living.config, routes=(replace(route, id="{json:/order/id}"),))
    (told,) = report_in_effect(changed, clients, rights, living.clock).problems
    assert str(told) == (
        'The route "orders" was first started with id = "", and now it has "{json:/order/id}"; '
        "restore the old value, or give the route another name, to make it a new route."
    )
    named = replace(living.config, routes=(replace(route, name="new", id="{json:/order/id}"),))
    assert report_in_effect(named, clients, rights, living.clock).problems == ()


def test_check_does_not_compare_an_invalid_route_with_its_first_start(tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text('[[routes]]\ninputs = ["orders"]\nid = "{key"\n', encoding="utf-8")
    read, problems = load_lenient(file, {})
    assert read is not None
    living = Living()
    clients, rights = living.clients("command"), FakeRights(living.cluster)
    changed = replace(living.config, routes=read.routes)
    invalid = invalid_routes(problems)
    assert invalid == {"orders"}
    assert report_in_effect(changed, clients, rights, living.clock, invalid).problems == ()


def test_check_reports_settings_that_do_not_hold_with_the_file() -> None:
    living = Living()
    put(living, SettingsOverlay(paused=("orders",)))
    (route,) = living.config.routes
    file = replace(living.config, routes=(replace(route, name="others"),))
    clients, rights = living.clients("command"), FakeRights(living.cluster)
    report = report_in_effect(file, clients, rights, living.clock)
    (told,) = [problem.what for problem in report.problems if "revision" in problem.what]
    assert told == (
        "the settings of revision 3 are invalid with this file: "
        'paused contains "orders", which is not a route; remove it.'
    )


def test_settings_that_may_not_be_read_are_a_missing_right_and_no_fault_of_the_broker() -> None:
    living = Living()
    put(living, SET)
    living.cluster.denied = {(TOPIC, "READ")}
    living.faults.at["consume"] = iter([plain(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")])
    clients, rights = living.clients("command"), FakeRights(living.cluster)
    report = report_in_effect(living.config, clients, rights, living.clock)
    assert f'READ on the topic "{TOPIC}" is not granted' in {each.what for each in report.problems}
    with pytest.raises(KafkaException):
        served(living)
