"""The configuration of a bridge: read alone or beside a service, refused with all its faults."""

from pathlib import Path

import pytest

from service.bridge.config import BridgeConfig, load, load_lenient
from service.config import load as load_service
from service.errors import Problem
from service.sections import ApiSettings, BridgeSettings

MINIMAL = """
[bridge]
topics = ["orders"]
{keys}
[bridge.source]
"bootstrap.servers" = "a:1"
{source}
[bridge.target]
"bootstrap.servers" = "b:1"
{target}
"""
OF_SERVICE = """
[kafka]
"bootstrap.servers" = "c:1"
[[routes]]
inputs = ["orders"]
scope = "partition"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "ringfence.toml"
    path.write_text(text, encoding="utf-8")
    return path


def minimal(keys: str = "", source: str = "", target: str = "") -> str:
    return MINIMAL.format(keys=keys, source=source, target=target)


def read(folder: Path, text: str, **environ: str) -> BridgeConfig:
    return load(written(folder, text), environ)


def problems(folder: Path, text: str, **environ: str) -> list[Problem]:
    return load_lenient(written(folder, text), environ)[1]


def only_problem(folder: Path, text: str, **environ: str) -> Problem:
    (problem,) = problems(folder, text, **environ)
    return problem


def test_what_is_not_given_has_its_default(folder: Path) -> None:
    config = read(folder, minimal())
    assert config.bridge == BridgeSettings(topics=("orders",))
    assert config.bridge.target_topic == "{topic}"
    assert config.bridge.use_duplicate_detection
    assert config.bridge.keep_partition
    assert config.dead_letter == "ringfence-bridge.dead-letters"
    assert config.api == ApiSettings()


def test_the_dead_letters_follow_the_group(folder: Path) -> None:
    assert read(folder, minimal('group_id = "eu"')).dead_letter == "eu.dead-letters"


def test_one_file_may_serve_both_and_each_reads_its_own(folder: Path) -> None:
    path = written(folder, minimal() + OF_SERVICE)
    assert load(path, {}).source.common == {"bootstrap.servers": "a:1"}
    assert load_service(path, {}).kafka.common == {"bootstrap.servers": "c:1"}


def test_servers_by_their_other_name_are_asked_too(folder: Path) -> None:
    config = read(folder, minimal().replace('"bootstrap.servers"', '"metadata.broker.list"'))
    assert config.has_servers


def test_properties_go_to_the_clients_that_know_them(folder: Path) -> None:
    text = minimal(source='"fetch.min.bytes" = 7\n"client.id" = "x"', target='"linger.ms" = 3')
    config = read(folder, text)
    assert config.source.consumer == {"fetch.min.bytes": 7}
    assert config.source.common == {"bootstrap.servers": "a:1", "client.id": "x"}
    assert config.target.producer == {"linger.ms": 3}


@pytest.mark.parametrize(
    "name",
    [
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.offset.reset",
        "isolation.level",
        "group.id",
        "group.instance.id",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "allow.auto.create.topics",
    ],
)
def test_what_reading_rests_on_is_refused_with_the_reason(folder: Path, name: str) -> None:
    problem = only_problem(folder, minimal(source=f'"{name}" = "x"'))
    assert problem.what.startswith(f'bridge.source."{name}" is refused: ')


@pytest.mark.parametrize(
    "name",
    [
        "acks",
        "enable.idempotence",
        "message.timeout.ms",
        "delivery.timeout.ms",
        "retries",
        "transactional.id",
        "partitioner",
        "batch.size",
        "allow.auto.create.topics",
    ],
)
def test_what_delivery_rests_on_is_refused_with_the_reason(folder: Path, name: str) -> None:
    problem = only_problem(folder, minimal(target=f'"{name}" = "x"'))
    assert problem.what.startswith(f'bridge.target."{name}" is refused: ')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (minimal("topic = 1"), "bridge.topic is not a setting"),
        (minimal('target_topic = "{key}"'), 'bridge.target_topic is "{key}": {key} is unknown'),
        (minimal('dead_letter = "{topic}.dlq"'), "{topic} is unknown"),
        (minimal('group_id = "orders"\ndead_letter = "{topic"'), "a brace has no partner"),
        (minimal("session_timeout_ms = 1"), "a whole number from 1000 to 240000"),
        (minimal('target_topic = "x"\ndead_letter = "x"'), 'are both "x"'),
        (minimal(source='"linger.ms" = 1'), 'bridge.source."linger.ms" has no effect there'),
        (minimal(target='"fetch.min.bytes" = 1'), "has no effect there"),
        (minimal(target='"linger.m" = 1'), "is not a property that librdkafka knows"),
        (minimal().replace('"orders"', '"^(orders"'), "which is not a regular expression"),
        (minimal().replace('"orders"', '"ringfence-bridge.x"'), "belong to Ringfence"),
        (minimal().replace('"a:1"', '""').replace('"bootstrap.servers" = ""', ""), "is missing"),
        (minimal().replace('topics = ["orders"]', ""), "bridge.topics is missing"),
        (minimal() + "[bridges]\n", "bridges is not a section"),
    ],
)
def test_a_fault_is_told_with_its_full_name_and_a_mend(folder: Path, text: str, words: str) -> None:
    problem = only_problem(folder, text)
    assert words in problem.what
    assert problem.mend


def test_without_a_section_everything_that_is_missing_is_told(folder: Path) -> None:
    told = [problem.what for problem in problems(folder, OF_SERVICE)]
    assert told == [
        'bridge.source."bootstrap.servers" is missing',
        'bridge.target."bootstrap.servers" is missing',
        "bridge.topics is missing, so there is nothing to forward",
    ]


def test_the_environment_goes_before_the_file(folder: Path) -> None:
    secret = folder / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    config = read(
        folder,
        minimal(),
        RINGFENCE_BRIDGE__TOPICS="a,b",
        RINGFENCE_BRIDGE__KEEP_PARTITION="false",
        RINGFENCE_BRIDGE__TARGET__BOOTSTRAP_SERVERS="c:1",
        RINGFENCE_BRIDGE__SOURCE__SASL_PASSWORD_FILE=str(secret),
        RINGFENCE_BRIDGE__SOURCE__LOG__LEVEL="5",
        RINGFENCE_API__PORT="0",
    )
    assert config.bridge.topics == ("a", "b")
    assert config.bridge.keep_partition is False
    assert config.target.common == {"bootstrap.servers": "c:1"}
    assert config.source.common["sasl.password"] == "s3cret"
    assert config.source.common["log_level"] == "5"
    assert config.api.port == 0
    assert "s3cret" not in repr(config)


@pytest.mark.parametrize(
    "variable",
    [
        "RINGFENCE_BRIDGE__TOPIC",
        "RINGFENCE_BRIDGE__SOURCE__BOOTSTRAP_SERVER",
        "RINGFENCE_BRIDGES__X",
    ],
)
def test_a_faulty_variable_is_told_by_its_own_name(folder: Path, variable: str) -> None:
    assert variable in only_problem(folder, minimal(), **{variable: "x"}).what


def test_variables_of_the_service_s_cluster_are_not_ours(folder: Path) -> None:
    config = read(folder, minimal(), KAFKA_BOOTSTRAP_SERVERS="c:1")
    assert config.source.common == {"bootstrap.servers": "a:1"}


def test_a_bridge_that_others_can_reach_says_who_may_ask_it(folder: Path) -> None:
    text = minimal() + '\n[api]\nhost = "10.0.0.1"\n'
    assert "others can reach" in only_problem(folder, text).what
    assert problems(folder, text, RINGFENCE_API__AUTH="none") == []
