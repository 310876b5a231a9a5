"""Translation of the `[kafka]` security settings to properties of the Java client.

The service uses librdkafka, Spark the Java client, which has other names for the same properties.
Certificates and keys are passed as text, so their files are needed only where the configuration is
read, not where executors run.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_service.config.kafka_properties import SERVERS, KafkaSettings

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
    """Return the bootstrap servers of the configuration, or an empty text."""
    return str(kafka.common.get(SERVERS, ""))


def java_properties(kafka: KafkaSettings, given: Properties) -> dict[str, str]:
    """Return the Java properties of the configuration's consumers, overridden by the given ones.

    A given property replaces its whole group: a trust store in a file replaces one in text, a
    login that only the Java client supports replaces the configured one. Raises PipelineError
    when a setting has no equivalent, or a file cannot be read.
    """
    settings = {name: _text(value) for name, value in {**kafka.common, **kafka.consumer}.items()}
    found: dict[str, str] = {}
    for group, translated in _GROUPS.items():
        if not any(name.startswith(group) for name in given):
            found |= translated(settings)
    return {**found, **given}


def _protocol(settings: Properties) -> dict[str, str]:
    return {_PROTOCOL: settings[_PROTOCOL].upper()} if _PROTOCOL in settings else {}


def _login(settings: Properties) -> dict[str, str]:
    if not settings.get(_PROTOCOL, "").upper().startswith("SASL"):
        return {}
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI")).upper()
    if mechanism not in _LOGINS:
        raise PipelineError(
            f"sasl.mechanism {mechanism} cannot be translated for the Java client: write "
            "sasl.mechanism, sasl.jaas.config and what else it needs into a file for "
            "--command-config",
            exit_code=USAGE,
        )
    user, password = (
        _quoted(settings.get(name, "")) for name in ("sasl.username", "sasl.password")
    )
    login = f"{_LOGINS[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _trust(settings: Properties) -> dict[str, str]:
    certificates = _pem(settings, "ssl.ca")
    if not certificates:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}


def _certificate(settings: Properties) -> dict[str, str]:
    password = {name: settings[name] for name in ("ssl.key.password",) if name in settings}
    chain, key = _pem(settings, "ssl.certificate"), _pem(settings, "ssl.key")
    if not chain:
        names = ("ssl.keystore.location", "ssl.keystore.password")
        return {name: settings[name] for name in names if name in settings} | password
    if any(old in key for old in _OLD_KEYS):
        raise PipelineError(
            "the key of ssl.key.location is not in PKCS#8, the only format that the Java client "
            "reads: convert it with openssl pkcs8 -topk8 -nocrypt",
            exit_code=USAGE,
        )
    store = {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return {"ssl.keystore.type": "PEM", **store, **password}


def _names(settings: Properties) -> dict[str, str]:
    if _NAMES_CHECKED not in settings:
        return {}
    return {_NAMES_CHECKED: settings[_NAMES_CHECKED].replace("none", "")}


_GROUPS: Final[Mapping[str, Callable[[Properties], dict[str, str]]]] = {
    "security.": _protocol,
    "sasl.": _login,
    "ssl.truststore.": _trust,
    "ssl.keystore.": _certificate,
    "ssl.endpoint.": _names,
}
"""Translations by the prefix of the Java client's property names."""


def _pem(settings: Properties, name: str) -> str:
    """Return the text of `NAME.pem`, or of the file in `NAME.location`, or an empty text."""
    file = settings.get(f"{name}.location")
    if f"{name}.pem" in settings or file is None:
        return settings.get(f"{name}.pem", "")
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PipelineError(
            f"{file} of {name}.location cannot be read: {reason}; name a PEM file on this machine",
            exit_code=USAGE,
        ) from error


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
