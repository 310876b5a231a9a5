"""A file that a client cannot use is named with its property, what is wrong, and what to do."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from ringfence_service.kafka.property_files import file_problems


def problem_of(name: str, path: Path) -> str:
    (problem,) = file_problems({"kafka": {name: str(path)}})
    return str(problem)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("ssl.ca.location", b"hello", "no -----BEGIN CERTIFICATE-----"),
        ("ssl.ca.location", bytes.fromhex("feedfeed0002"), "keytool -exportcert -rfc"),
        ("ssl.ca.location", b"\x30\x82\x01", "openssl x509 -inform der"),
        ("ssl.key.location", b"-----BEGIN CERTIFICATE-----", "no -----BEGIN PRIVATE KEY-----"),
        ("ssl.keystore.location", bytes.fromhex("feedfeed0002"), "keytool -importkeystore"),
        (
            "ssl.certificate.location",
            b"-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
            "cannot be read",
        ),
    ],
)
def test_a_file_of_another_kind_is_a_problem(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    said = problem_of(name, path)
    assert said.startswith(f'kafka."{name}" names the file {path}, which ')
    assert told in said


def test_a_file_that_is_missing_or_a_folder_is_a_problem(tmp_path: Path) -> None:
    assert "does not exist; correct the path" in problem_of("ssl.key.location", tmp_path / "none")
    assert "is a folder" in problem_of("ssl.key.location", tmp_path)
    # OpenSSL takes a folder of authorities.
    assert file_problems({"kafka": {"ssl.ca.location": str(tmp_path)}}) == []


def test_a_file_that_may_not_be_read_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key.pem"
    path.touch()

    def refuses(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuses)
    assert "cannot be read (Permission denied); let user" in problem_of("ssl.key.location", path)


def test_a_certificate_that_has_expired_is_a_problem(tmp_path: Path, authority: trustme.CA) -> None:
    path = tmp_path / "client.pem"
    past = datetime.now(UTC) - timedelta(days=2)
    old = authority.issue_cert("client", not_before=past, not_after=past + timedelta(days=1))
    old.private_key_and_cert_chain_pem.write_to_path(str(path))
    assert "has a certificate that expired at" in problem_of("ssl.certificate.location", path)


def test_files_that_a_client_takes_are_no_problem(tmp_path: Path, authority: trustme.CA) -> None:
    path = tmp_path / "client.pem"
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(path))
    names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
    assert file_problems({"kafka": dict.fromkeys(names, str(path))}) == []
    assert file_problems({"kafka": {"ssl.ca.location": "probe"}}) == []
