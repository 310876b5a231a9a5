"""The configuration: layers, bounds, all problems at once, and a best effort next to them."""

from pathlib import Path

import pytest

from service.config import Config, ConfigErrors, load, load_lenient
from service.errors import ExitCode, ExitError, Problem
from service.sections import ApiSettings, LogSettings, ServiceSettings, TracingSettings

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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "ringfence.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str, **environ: str) -> Config:
    return load(written(folder, text), environ)


def problems(folder: Path, text: str, **environ: str) -> list[Problem]:
    return load_lenient(written(folder, text), environ)[1]


def only_problem(folder: Path, text: str, **environ: str) -> Problem:
    (problem,) = problems(folder, text, **environ)
    return problem


def test_what_is_not_given_has_its_default(folder: Path) -> None:
    config = read(folder, MINIMAL)
    assert config.service == ServiceSettings()
    assert config.api == ApiSettings()
    assert config.routes[0].name == "orders"
    assert config.routes[0].output == "{topic}.unique"
    assert config.addresses.settings("orders").id_cache_size == 20_000


def test_every_key_of_the_contract_is_accepted(folder: Path) -> None:
    config = read(
        folder,
        """
[kafka]
"bootstrap.servers" = "127.0.0.1:9092"
[service]
group_id = "ringfence"
instance = "0"
workers = 1
state_dir = "./state-data"
batch_records_max = 10000
batch_bytes_max = 67108864
batch_wait_ms = 20
transaction_timeout_ms = 10000
session_timeout_ms = 10000
cache_memory_mb = 256
by_address_partitions = 12
internal_replication = -1
create_topics = false
on_missing_offset = "earliest"
on_lost_offset = "fail"
on_reset_offset = "fail"
managed_by = "rest"
[api]
host = "127.0.0.1"
port = 8080
advertised_url = ""
[[routes]]
name = "orders"
inputs = ["orders"]
scope = "partition"
address = "{topic}"
id = ""
output = "{topic}.unique"
dead_letter = "{topic}.dlq"
missing_id = "pass"
on_partitions_added = "fail"
[addresses."#"]
strategy = "ring"
id_cache_size = 20000
persist_id_cache = true
on_duplicate = "dead_letter"
[addresses."flights.#"]
id_cache_size = 400000
""",
    )
    assert config.service == ServiceSettings()
    assert config.addresses.settings("flights.eu").id_cache_size == 400_000


def test_the_environment_is_stronger_than_the_file_and_the_file_than_the_default(
    folder: Path,
) -> None:
    text = MINIMAL + "[service]\nbatch_wait_ms = 30\ncache_memory_mb = 64\n"
    config = read(folder, text, RINGFENCE_SERVICE__BATCH_WAIT_MS="40")
    assert config.service.batch_wait_ms == 40
    assert config.service.cache_memory_mb == 64


def test_all_problems_are_told_at_once_each_with_its_mend(folder: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        read(folder, FIVE_FAULTS)
    assert caught.value.exit_code is ExitCode.USAGE
    told = " ".join(problem.what for problem in caught.value.problems)
    assert len(caught.value.problems) == 3
    for name in ("service.batch_wait ", 'kafka."enable.auto.commit"', 'addresses."a.#.z"'):
        assert name in told
    assert all(problem.mend for problem in caught.value.problems)


def test_what_is_faulty_falls_back_so_that_the_broker_can_still_be_asked(folder: Path) -> None:
    config, found = load_lenient(written(folder, FIVE_FAULTS), {})
    assert len(found) == 3
    assert config is not None
    assert config.service.batch_wait_ms == ServiceSettings().batch_wait_ms
    assert config.routes[0].output == "missing"
    assert "enable.auto.commit" not in config.kafka.consumer
    assert not config.addresses.patterns


def test_an_unknown_key_is_told_with_the_nearest_known_one(folder: Path) -> None:
    problem = only_problem(folder, MINIMAL + "[service]\nbatch_wait = 20\n")
    assert problem.what.startswith("service.batch_wait is not a setting (it is 20); known are ")
    assert "batch_records_max" in problem.what
    assert problem.mend == "the nearest is batch_wait_ms: rename or remove it"


@pytest.mark.parametrize("line", ['client_secret = "s3cret"', '"sasl.password" = "s3cret"'])
def test_an_unknown_key_that_may_hold_a_secret_keeps_it(folder: Path, line: str) -> None:
    problem = only_problem(folder, MINIMAL + f"[api]\n{line}\n")
    assert "s3cret" not in str(problem)
    assert '"***"' in problem.what


def test_a_file_that_an_unknown_variable_names_is_not_read(folder: Path) -> None:
    (folder / "secret").write_text("s3cret", encoding="utf-8")
    path = str(folder / "secret")
    problem = only_problem(folder, MINIMAL, RINGFENCE_API__WHATEVER_FILE=path)
    assert "api.whatever_file (from RINGFENCE_API__WHATEVER_FILE) is not a setting" in problem.what
    assert "s3cret" not in str(problem)


def test_an_unknown_section_is_told_with_the_nearest_known_one(folder: Path) -> None:
    assert "routes" in only_problem(folder, MINIMAL + "[rotes]\n").mend


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("batch_records_max = 0", "from 1 to 1000000"),
        ("batch_records_max = true", "a whole number"),
        ('batch_records_max = "10"', "a whole number"),
        ("batch_wait_ms = 20.5", "a whole number"),
        ("internal_replication = 0", "-1 or a whole number"),
        ("instance = 0", "text"),
        ('group_id = "a b"', "letters, digits"),
        ("create_topics = 1", "true or false"),
        ('on_lost_offset = "latests"', '"fail" or "earliest" or "latest"'),
        ('state_dir = ""', "the path of a folder"),
    ],
)
def test_a_value_out_of_bounds_is_told_with_its_key_and_what_is_allowed(
    folder: Path, line: str, allowed: str
) -> None:
    key, _, value = line.partition(" = ")
    problem = only_problem(folder, f"{MINIMAL}[service]\n{line}\n")
    assert problem.what.startswith(f"service.{key} is {value}: ")
    assert allowed in problem.what


@pytest.mark.parametrize("url", ["http://a", "https://a.b:8443", "http://[::1]:1/prefix/"])
def test_where_other_instances_reach_the_api_is_a_url(folder: Path, url: str) -> None:
    assert read(folder, f'{MINIMAL}[api]\nadvertised_url = "{url}"\n').api.advertised_url == url


@pytest.mark.parametrize("url", ["a:80", "ftp://a", "http://", "http://a?b=c"])
def test_an_advertised_url_that_is_none_is_refused(folder: Path, url: str) -> None:
    problem = only_problem(folder, f'{MINIMAL}[api]\nadvertised_url = "{url}"\n')
    assert "http://" in problem.what or "http://" in problem.mend


def test_a_number_that_no_version_takes_is_out_of_bounds_and_not_of_a_later_version(
    folder: Path,
) -> None:
    assert "allowed" in only_problem(folder, MINIMAL + "[service]\nworkers = 0\n").what


@pytest.mark.parametrize("managed_by", ["rest", "file"])
def test_both_ways_of_managing_are_accepted(folder: Path, managed_by: str) -> None:
    config = read(folder, f'{MINIMAL}[service]\nmanaged_by = "{managed_by}"\n')
    assert config.service.managed_by == managed_by


def test_a_syntax_error_names_file_line_and_column(folder: Path) -> None:
    config, (problem,) = load_lenient(written(folder, "[kafka]\nx = \n"), {})
    assert config is None
    assert f"{folder}/ringfence.toml, line 2, column 5" in problem.what


def test_a_file_that_cannot_be_read_is_a_sentence_and_no_traceback(folder: Path) -> None:
    for missing in (folder / "none", folder):
        with pytest.raises(ExitError, match=r"cannot be read: .+; name a readable") as told:
            load_lenient(missing, {})
        assert told.value.exit_code is ExitCode.USAGE
    path = folder / "binary"
    path.write_bytes(b"\xff\xfe")
    assert "UTF-8" in load_lenient(path, {})[1][0].what


def test_a_byte_order_mark_of_an_editor_does_no_harm(folder: Path) -> None:
    path = folder / "ringfence.toml"
    path.write_text(MINIMAL, encoding="utf-8-sig")
    assert load(path, {}).routes[0].inputs == ("orders",)


@pytest.mark.parametrize("text", ["service = 1\n", "addresses = []\n"])
def test_a_section_of_the_wrong_kind_is_a_problem(folder: Path, text: str) -> None:
    assert any("is not a" in problem.what for problem in problems(folder, text + MINIMAL))


def test_a_single_table_of_routes_is_told_how_to_write_it(folder: Path) -> None:
    found = problems(folder, '[routes]\ninputs = ["orders"]\n')
    assert any("[[routes]]" in problem.mend for problem in found)


def test_a_pattern_without_quotes_is_told_how_to_write_it(folder: Path) -> None:
    problem = only_problem(folder, MINIMAL + "[addresses.flights.eu]\nid_cache_size = 5\n")
    assert '[addresses."flights.eu"]' in problem.mend


def test_without_a_file_the_environment_alone_is_read() -> None:
    config, found = load_lenient(None, {"KAFKA_BOOTSTRAP_SERVERS": "a:1"})
    assert config is not None
    assert config.kafka.common["bootstrap.servers"] == "a:1"
    assert [problem.what[:10] for problem in found] == ["[[routes]]"]


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("session_timeout_ms = 400000", "max.poll.interval.ms"),
        ("transaction_timeout_ms = 600000", "max.poll.interval.ms"),
        ("transaction_timeout_ms = 5000", "socket.timeout.ms"),
    ],
)
def test_time_limits_that_cannot_hold_together_are_told(
    folder: Path, lines: str, name: str
) -> None:
    environ = {"KAFKA_SOCKET_TIMEOUT_MS": "9000"}
    found = problems(folder, f"{MINIMAL}[service]\n{lines}\n", **environ)
    assert [name in problem.what for problem in found] == [True]


def test_a_frozen_config_cannot_be_changed(folder: Path) -> None:
    config = read(folder, MINIMAL)
    with pytest.raises(AttributeError):
        config.service.workers = 2  # type: ignore[misc]


def test_a_value_of_several_lines_is_told_on_one(folder: Path) -> None:
    problem = only_problem(folder, f'{MINIMAL}[api]\nhost = "a\\nb"\n')
    assert str(problem).splitlines() == [str(problem)]
    assert r'"a\nb"' in problem.what


def test_log_and_tracing_come_from_the_file_and_the_environment(folder: Path) -> None:
    text = MINIMAL + '[log]\nlevel = "warning"\n[tracing]\nendpoint = "http://collector:4318"\n'
    config = read(folder, text, RINGFENCE_LOG__FORMAT="json", RINGFENCE_TRACING__SAMPLE_RATIO=".5")
    assert config.log == LogSettings("warning", "json")
    assert config.tracing == TracingSettings("http://collector:4318", 0.5)


@pytest.mark.parametrize("share", ["2", "-0.1", "true", '"half"'])
def test_a_share_is_a_number_from_none_to_all(folder: Path, share: str) -> None:
    problem = only_problem(folder, f"{MINIMAL}[tracing]\nsample_ratio = {share}\n")
    assert "tracing.sample_ratio" in problem.what
    assert "a number from 0 to 1" in problem.what
