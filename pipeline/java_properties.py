"""What `[kafka]` says of a secured cluster, in the words of Java's client.

The service talks to Kafka by librdkafka, Spark by Java's client, which calls the same things by
other names. Certificates and keys are handed over as text, so that their files need to be where
the configuration is read, and not where executors run.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pipeline.errors import USAGE, PipelineError
from service.config.kafka_properties import SERVERS, KafkaSettings

Properties = Mapping[str, str]

_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGINS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
_PROTOCOL: Final = "security.protocol"
_NAMES_CHECKED: Final = "ssl.endpoint.identification.algorithm"
_OLD_KEYS: Final = ("BEGIN RSA PRIVATE KEY", "BEGIN EC PRIVATE KEY")


def servers_of(kafka: KafkaSettings) -> str:
    """The brokers; nothing where they are told elsewhere."""
    return str(kafka.common.get(SERVERS, ""))


def java_properties(kafka: KafkaSettings, given: Properties) -> dict[str, str]:
    """Those of the configuration's consumers, and over them what was given for Java's client.

    What is given of a group replaces the group: a trust store in a file takes the place of one in
    text, a login that only Java's client has the place of the one here.
    """
    told = {name: _text(value) for name, value in {**kafka.common, **kafka.consumer}.items()}
    found: dict[str, str] = {}
    for group, translated in _GROUPS.items():
        if not any(name.startswith(group) for name in given):
            found |= translated(told)
    return {**found, **given}


def _protocol(told: Properties) -> dict[str, str]:
    return {_PROTOCOL: told[_PROTOCOL].upper()} if _PROTOCOL in told else {}


def _login(told: Properties) -> dict[str, str]:
    if not told.get(_PROTOCOL, "").upper().startswith("SASL"):
        return {}
    mechanism = told.get("sasl.mechanism", told.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism not in _LOGINS:
        raise PipelineError(
            f"how Java's client logs in by sasl.mechanism {mechanism} the configuration does not "
            "tell: write sasl.mechanism, sasl.jaas.config and what else it needs into a file for "
            "--command-config",
            exit_code=USAGE,
        )
    user, password = (_quoted(told.get(name, "")) for name in ("sasl.username", "sasl.password"))
    login = f"{_LOGINS[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _trust(told: Properties) -> dict[str, str]:
    certificates = _pem(told, "ssl.ca")
    if not certificates:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}


def _certificate(told: Properties) -> dict[str, str]:
    password = {name: told[name] for name in ("ssl.key.password",) if name in told}
    chain, key = _pem(told, "ssl.certificate"), _pem(told, "ssl.key")
    if not chain:
        names = ("ssl.keystore.location", "ssl.keystore.password")
        return {name: told[name] for name in names if name in told} | password
    if any(old in key for old in _OLD_KEYS):
        raise PipelineError(
            "the key of ssl.key.location is not in PKCS#8, which is all that Java's client reads: "
            "convert it with openssl pkcs8 -topk8 -nocrypt",
            exit_code=USAGE,
        )
    store = {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return {"ssl.keystore.type": "PEM", **store, **password}


def _names(told: Properties) -> dict[str, str]:
    if _NAMES_CHECKED not in told:
        return {}
    return {_NAMES_CHECKED: told[_NAMES_CHECKED].replace("none", "")}


_GROUPS: Final[Mapping[str, Callable[[Properties], dict[str, str]]]] = {
    "security.": _protocol,
    "sasl.": _login,
    "ssl.truststore.": _trust,
    "ssl.keystore.": _certificate,
    "ssl.endpoint.": _names,
}
"""By how the names of Java's client begin."""


def _pem(told: Properties, name: str) -> str:
    """The text of `NAME.pem`, or of the file of `NAME.location`; empty where there is neither."""
    file = told.get(f"{name}.location")
    if f"{name}.pem" in told or file is None:
        return told.get(f"{name}.pem", "")
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PipelineError(
            f"{file} of {name}.location cannot be read: {reason}; name a PEM file that is here",
            exit_code=USAGE,
        ) from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
