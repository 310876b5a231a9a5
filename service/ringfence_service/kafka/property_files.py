"""Files named by Kafka properties: whether a client can use them, by property and path.

The client's own error says neither which file it could not use nor what a Java store is to it.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ringfence_service.config.kafka_properties import Property
from ringfence_service.errors import ConfigIssue

_AUTHORITY: Final = "ssl.ca.location"
_CERTIFICATE: Final = "ssl.certificate.location"
_STORE: Final = "ssl.keystore.location"
FILES: Final[Mapping[str, str]] = {
    _AUTHORITY: "CERTIFICATE-----",
    _CERTIFICATE: "CERTIFICATE-----",
    "ssl.key.location": "PRIVATE KEY-----",
    _STORE: "",
    "ssl.crl.location": "X509 CRL-----",
}
"""Properties that name a file, each with what a file of PEM has in its first lines."""
_PROBE: Final = "probe"
"""The value of `ssl.ca.location` that has the client look for the authorities of the system."""
_JKS: Final = bytes.fromhex("feedfeed")
_DER: Final = b"\x30"
_TO_PEM: Final = {
    _JKS: "keytool -exportcert -rfc -keystore {path} -alias ALIAS prints a certificate as PEM",
    _DER: "openssl converts it: openssl x509 -inform der, or openssl pkcs12 -nodes for a PKCS #12",
}


def file_problems(tables: Mapping[str, Mapping[str, Property]]) -> list[ConfigIssue]:
    """Return a problem for each file that cannot be used, given properties by table."""
    return [
        ConfigIssue(f'{table}."{name}" names the file {path}, which {what}', fix)
        for table, properties in tables.items()
        for name in FILES
        for path in [properties.get(name)]
        if path not in {None, "", _PROBE}
        for what, fix in _faults(name, Path(str(path)))
    ]


def _faults(name: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a file, as a predicate, and what to do."""
    if not path.exists():
        yield "does not exist", "correct the path"
        return
    if path.is_dir():
        if name != _AUTHORITY:
            yield "is a folder", "name the file in it"
        return
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        yield f"cannot be read ({reason})", f"let user {os.getuid()} read it"
        return
    yield from _content_faults(name, path, content)


def _content_faults(name: str, path: Path, content: bytes) -> Iterator[tuple[str, str]]:
    if name == _STORE:
        if content.startswith(_JKS):
            to = f"keytool -importkeystore -srckeystore {path} -destkeystore FILE.p12"
            yield "is a Java key store", f"convert it to PKCS #12: {to} -deststoretype pkcs12"
        return
    if FILES[name].encode() not in content:
        hint = next((text for head, text in _TO_PEM.items() if content.startswith(head)), "")
        fix = hint.format(path=path) if hint else "name a file that has it"
        yield f"has no -----BEGIN {FILES[name]}: it is not PEM of that kind", fix
    elif name in {_AUTHORITY, _CERTIFICATE}:
        yield from _expired(name, content)


def _expired(name: str, content: bytes) -> Iterator[tuple[str, str]]:
    """Yield a fault if no certificate in the file is valid; of our own, the first one counts."""
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415 - it loads slowly

    try:
        chain = load_pem_x509_certificates(content)
    except ValueError as error:
        yield f"has a certificate that cannot be read ({error})", "write it again, as PEM"
        return
    ends = [each.not_valid_after_utc for each in chain]
    end = ends[0] if name == _CERTIFICATE else max(ends)
    if end < datetime.now(UTC):
        yield f"has a certificate that expired at {end:%Y-%m-%d %H:%M} UTC", "renew it"
