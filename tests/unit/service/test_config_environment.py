"""Our settings from the environment: names, conversion, secrets in files, links of others."""

from pathlib import Path

from service.config import Config, load_lenient
from service.errors import Problem


def read(**environ: str) -> tuple[Config, list[Problem]]:
    config, found = load_lenient(None, {"KAFKA_BOOTSTRAP_SERVERS": "a:1", **environ})
    assert config is not None
    return config, [problem for problem in found if not problem.what.startswith("[[routes]]")]


def test_text_becomes_what_the_setting_holds() -> None:
    config, found = read(
        RINGFENCE_SERVICE__BATCH_RECORDS_MAX="500",
        RINGFENCE_SERVICE__CREATE_TOPICS="TRUE",
        RINGFENCE_SERVICE__INSTANCE="7",
        RINGFENCE_SERVICE__STATE_DIR="/var/lib/ringfence",
        RINGFENCE_API__PORT="0",
        KAFKA_CLIENT_ID="",
    )
    assert not found
    assert "client.id" not in config.kafka.common, "what is empty counts as absent"
    assert config.service.batch_records_max == 500
    assert config.service.create_topics is True
    assert config.service.instance == "7"
    assert config.service.state_dir == Path("/var/lib/ringfence")
    assert config.api.port == 0


def test_a_secret_comes_from_a_file_without_its_last_line_end(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n", encoding="utf-8")
    config, found = read(KAFKA_SASL_PASSWORD_FILE=str(secret))
    assert not found
    assert config.kafka.common["sasl.password"] == "s3cret"


def test_a_setting_of_ours_may_come_from_a_file_too(tmp_path: Path) -> None:
    ordinal = tmp_path / "ordinal"
    ordinal.write_text("12\n", encoding="utf-8")
    config, found = read(RINGFENCE_SERVICE__INSTANCE_FILE=str(ordinal))
    assert not found
    assert config.service.instance == "12"


def test_a_property_whose_own_name_ends_in_file_is_not_read_from_one() -> None:
    config, found = read(KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE="/run/assertion")
    assert not found
    assert config.kafka.common["sasl.oauthbearer.assertion.file"] == "/run/assertion"
