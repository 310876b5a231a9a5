"""The configuration: layers, bounds, all problems at once, and a best effort next to them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ringfence_service.config.addresses import AddressSettings
from ringfence_service.config.load import ConfigErrors, load, load_lenient
from ringfence_service.config.model import (
    ApiSettings,
    Config,
    LogSettings,
    RouteSettings,
    ServiceSettings,
    TracingSettings,
)
from ringfence_service.config.targets import INTERNAL_NAMES
from ringfence_service.errors import ConfigIssue, ExitCode
from ringfence_service.kafka.topics import by_address, config_topic
from tests.support.helpers import ending

MINIMAL = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"

[[routes]]
inputs = ["orders"]
scope = "partition"
"""

FIVE_FAULTS = """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
"enable.auto.commit" = true

[service]
batch_wait = 20

[[routes]]
inputs = ["orders"]
scope = "partition"
output = "missing"

[addresses."a.#.z"]
id_cache_size = 5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "ringfence.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str, **environ: str) -> Config:
    return load(written(folder, text), environ)


def problems(folder: Path, text: str, **environ: str) -> list[ConfigIssue]:
    return load_lenient(written(folder, text), environ)[1]


def only_problem(folder: Path, text: str, **environ: str) -> ConfigIssue:
    (problem,) = problems(folder, text, **environ)
    return problem


def test_what_is_not_given_has_its_default(tmp_path: Path) -> None:
    config = read(tmp_path, MINIMAL)
    assert config.service == ServiceSettings()
    assert config.api == ApiSettings()
    assert config.routes[0].name == "orders"
    assert config.routes[0].output == "{topic}.unique"
    assert config.addresses.settings("orders").id_cache_size == 20_000


def keys_of(section: Any, *left_out: str) -> str:
    """All that is set there, as lines of a file."""
    given = {name: value for name, value in asdict(section).items() if value not in ("", ())}
    texts = {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items()
    }
    return "\n".join(f"{n} = {json.dumps(v)}" for n, v in texts.items() if n not in left_out)


def test_every_key_may_be_given_as_it_is_by_default(tmp_path: Path) -> None:
    route = RouteSettings(name="orders", inputs=("orders",), scope="partition")
    sections = {
        "service": ServiceSettings(),
        "api": ApiSettings(),
        "log": LogSettings(),
        "tracing": TracingSettings(),
        'addresses."#"': AddressSettings(),
    }
    text = MINIMAL + keys_of(route, "inputs", "scope") + '\nid = ""\n'
    text += "".join(f"[{name}]\n{keys_of(section)}\n" for name, section in sections.items())
    config = read(tmp_path, text)
    found = (config.service, config.api, config.log, config.tracing)
    assert (*found, config.addresses.settings("orders")) == tuple(sections.values())
    assert config.routes == (route,)


def test_the_environment_is_stronger_than_the_file_and_the_file_than_the_default(
    tmp_path: Path,
) -> None:
    text = MINIMAL + "[service]\nbatch_wait_ms = 30\ncache_memory_mb = 64\n"
    config = read(tmp_path, text, RINGFENCE_SERVICE__BATCH_WAIT_MS="40")
    assert config.service.batch_wait_ms == 40
    assert config.service.cache_memory_mb == 64


def test_all_problems_are_reported_at_once_each_with_its_fix(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        read(tmp_path, FIVE_FAULTS)
    assert caught.value.exit_code is ExitCode.USAGE
    told = " ".join(problem.what for problem in caught.value.problems)
    assert len(caught.value.problems) == 3
    for name in ("service.batch_wait ", 'kafka."enable.auto.commit"', 'addresses."a.#.z"'):
        assert name in told
    assert all(problem.fix for problem in caught.value.problems)


def test_what_is_faulty_falls_back_so_that_the_broker_can_still_be_asked(tmp_path: Path) -> None:
    config, found = load_lenient(written(tmp_path, FIVE_FAULTS), {})
    assert len(found) == 3
    assert config is not None
    assert config.service.batch_wait_ms == ServiceSettings().batch_wait_ms
    assert config.routes[0].output == "missing"
    assert "enable.auto.commit" not in config.kafka.consumer
    assert not config.addresses.patterns


def test_a_file_that_an_unknown_variable_names_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret", encoding="utf-8")
    path = str(tmp_path / "secret")
    problem = only_problem(tmp_path, MINIMAL, RINGFENCE_API__WHATEVER_FILE=path)
    assert "api.whatever_file (from RINGFENCE_API__WHATEVER_FILE) is not a setting" in problem.what
    assert "s3cret" not in str(problem)


def test_a_syntax_error_names_file_line_and_column(tmp_path: Path) -> None:
    config, (problem,) = load_lenient(written(tmp_path, "[kafka]\nx = \n"), {})
    assert config is None
    assert f"{tmp_path}/ringfence.toml, line 2, column 5" in problem.what


def test_a_file_that_cannot_be_read_is_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    for missing in (tmp_path / "none", tmp_path):
        with ending(ExitCode.USAGE, r"cannot be read: .+; name a readable"):
            load_lenient(missing, {})
    path = tmp_path / "binary"
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in load_lenient(path, {})[1][0].what


def test_a_byte_order_mark_of_an_editor_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text(MINIMAL, encoding="utf-8-sig")
    assert load(path, {}).routes[0].inputs == ("orders",)


def test_without_a_file_the_environment_alone_is_read() -> None:
    config, found = load_lenient(None, {"KAFKA_BOOTSTRAP_SERVERS": "a:1"})
    assert config is not None
    assert config.kafka.common["bootstrap.servers"] == "a:1"
    assert [problem.what[:10] for problem in found] == ["[[routes]]"]


def test_log_and_tracing_come_from_the_file_and_the_environment(tmp_path: Path) -> None:
    text = MINIMAL + '[log]\nlevel = "warning"\n[tracing]\nendpoint = "http://collector:4318"\n'
    config = read(
        tmp_path, text, RINGFENCE_LOG__FORMAT="json", RINGFENCE_TRACING__SAMPLE_RATIO=".5"
    )
    assert config.log == LogSettings("warning", "json")
    assert config.tracing == TracingSettings("http://collector:4318", 0.5)


def test_a_route_that_names_no_scope_is_decided_by_address(tmp_path: Path) -> None:
    config = read(tmp_path, MINIMAL.replace('scope = "partition"', ""))
    assert [route.scope for route in config.routes] == ["address"]


def test_the_internal_names_that_no_target_may_have_are_those_of_the_topics() -> None:
    of_group = {by_address("g"), config_topic("g")}
    assert {f"g.{name}" for name in INTERNAL_NAMES} == of_group
