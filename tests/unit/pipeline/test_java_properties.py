"""What the configuration says of a secured cluster reaches Java's client in its own words."""

from pathlib import Path

import pytest

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.java_properties import java_properties, servers_of
from ringfence_service.config.kafka_properties import KafkaSettings, Property, read_kafka
from ringfence_service.config.keys import GivenValue

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN: dict[str, Property] = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ringfence",
    "sasl.password": 'a"b\\c',
}


def of(told: dict[str, Property], given: dict[str, str] | None = None) -> dict[str, str]:
    return java_properties(KafkaSettings(told, {}, {}, {}), given or {})


def test_an_open_cluster_needs_nothing() -> None:
    assert of({"bootstrap.servers": "a:1", "client.id": "x"}) == {}


def test_the_brokers_have_two_names() -> None:
    for name in ("bootstrap.servers", "metadata.broker.list"):
        settings = read_kafka({"common": {name: GivenValue("a:1,b:2", "")}}, [])
        assert servers_of(settings) == "a:1,b:2"


def test_a_login_is_passed_on_with_its_quotes_kept() -> None:
    assert of(LOGIN) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} required username="ringfence" password="a\\"b\\\\c";',
    }


def test_consumer_settings_take_precedence_over_common_settings() -> None:
    kafka = KafkaSettings(LOGIN, {"sasl.username": "reader"}, {"sasl.username": "writer"}, {})
    assert 'username="reader"' in java_properties(kafka, {})["sasl.jaas.config"]


def test_certificates_and_keys_travel_as_text(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"-----BEGIN {name}-----\n")
    told: dict[str, Property] = {
        f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")
    }
    assert of({**told, "ssl.endpoint.identification.algorithm": "none"}) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-----BEGIN ca-----\n",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-----BEGIN certificate-----\n",
        "ssl.keystore.key": "-----BEGIN key-----\n",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_what_is_given_for_the_client_takes_the_place_of_its_group() -> None:
    given = {"ssl.truststore.location": "/trust.p12", "sasl.mechanism": "GSSAPI"}
    told: dict[str, Property] = {**LOGIN, "ssl.ca.location": "/not/here"}
    assert of(told, given) == {"security.protocol": "SASL_SSL", **given}


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER .* --command-config"),
        ({"security.protocol": "SASL_SSL"}, "GSSAPI .* --command-config"),
        ({"ssl.ca.location": "/not/here"}, "/not/here of ssl.ca.location cannot be read: No such"),
        (
            {"ssl.certificate.pem": "x", "ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"},
            "PKCS#8.*openssl pkcs8",
        ),
    ],
)
def test_settings_that_cannot_be_translated_are_refused_with_what_to_do(
    told: dict[str, Property], sentence: str
) -> None:
    with pytest.raises(PipelineError, match=sentence) as refused:
        of(told)
    assert refused.value.exit_code == USAGE
