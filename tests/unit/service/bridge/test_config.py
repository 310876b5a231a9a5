"""The configuration of a bridge: read alone or beside a service, refused with all its faults."""

from pathlib import Path

from ringfence_service.bridge.config import BridgeConfig, load
from ringfence_service.config.load import load as load_service
from ringfence_service.config.model import ApiSettings, BridgeSettings

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


def written(folder: Path, text: str) -> Path:
    path = folder / "ringfence.toml"
    path.write_text(text, encoding="utf-8")
    return path


def minimal(keys: str = "", source: str = "", target: str = "") -> str:
    return MINIMAL.format(keys=keys, source=source, target=target)


def read(folder: Path, text: str, **environ: str) -> BridgeConfig:
    return load(written(folder, text), environ)


def test_what_is_not_given_has_its_default(tmp_path: Path) -> None:
    config = read(tmp_path, minimal())
    assert config.bridge == BridgeSettings(topics=("orders",))
    assert config.bridge.target_topic == "{topic}"
    assert config.bridge.use_duplicate_detection
    assert config.bridge.keep_partition
    assert config.dead_letter == "ringfence-bridge.dead-letters"
    assert config.api == ApiSettings()


def test_one_file_may_serve_both_and_each_reads_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, minimal() + OF_SERVICE)
    assert load(path, {}).source.common == {"bootstrap.servers": "a:1"}
    assert load_service(path, {}).kafka.common == {"bootstrap.servers": "c:1"}


def test_servers_by_their_other_name_are_asked_too(tmp_path: Path) -> None:
    config = read(tmp_path, minimal().replace('"bootstrap.servers"', '"metadata.broker.list"'))
    assert config.has_servers


def test_properties_go_to_the_clients_that_know_them(tmp_path: Path) -> None:
    text = minimal(source='"fetch.min.bytes" = 7\n"client.id" = "x"', target='"linger.ms" = 3')
    config = read(tmp_path, text)
    assert config.source.consumer == {"fetch.min.bytes": 7}
    assert config.source.common == {"bootstrap.servers": "a:1", "client.id": "x"}
    assert config.target.producer == {"linger.ms": 3}


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n", encoding="utf-8")
    config = read(
        tmp_path,
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
