"""`[api]` as a whole: who is let in is said, and the files that say so are there."""

from pathlib import Path

import pytest
import trustme

from ringfence_service.config.model import ApiSettings
from ringfence_service.config.validation import api_problems

SECRET = "s" * 40


def problems(**keys: object) -> list[str]:
    return [str(each) for each in api_problems(ApiSettings(**keys))]  # type: ignore[arg-type]


def test_tokens_need_a_file_that_can_be_read_and_holds_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert "tokens_file is missing" in problems(auth="tokens")[0]
    assert "cannot be read: No such file" in problems(auth="tokens", tokens_file=str(path))[0]
    path.write_text("# nothing\n")
    assert "contains no token" in problems(auth="tokens", tokens_file=str(path))[0]
    path.write_text(f"ada admin {SECRET}\n")
    (problem,) = problems(auth="tokens", tokens_file=str(path))
    assert "line 1" in problem
    assert SECRET not in problem
    path.write_bytes(b"\xff")
    assert "UTF-8" in problems(auth="tokens", tokens_file=str(path))[0]


@pytest.mark.parametrize("key", ["peer_token_file", "session_key_file"])
def test_a_secret_that_can_be_guessed_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    path = tmp_path / "secret"
    wrong = {
        "swordfish": "fewer than 32 characters",
        "schlüssel" * 10: "a single line of visible ASCII",
        f"{SECRET}\n# rotated": "a single line of visible ASCII",
        f"{SECRET} {SECRET}": "a single line of visible ASCII",
    }
    for secret, words in wrong.items():
        path.write_text(secret)
        (problem,) = problems(**{key: str(path)})
        assert words in problem
        assert secret not in problem
    path.write_text(SECRET)
    assert problems(**{key: str(path)}) == []
    path.unlink()
    assert "cannot be read" in problems(**{key: str(path)})[0]


def test_tls_needs_a_certificate_and_the_key_to_it(tmp_path: Path) -> None:
    authority = trustme.CA()
    for name in ("a", "b"):
        made = authority.issue_cert("127.0.0.1")
        made.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.crt"))
        made.private_key_pem.write_to_path(str(tmp_path / f"{name}.key"))
    a, b = (
        {"tls_cert_file": str(tmp_path / f"{n}.crt"), "tls_key_file": str(tmp_path / f"{n}.key")}
        for n in "ab"
    )
    assert problems(**a) == []
    assert "only one of api.tls_cert_file" in problems(tls_cert_file=a["tls_cert_file"])[0]
    assert "cannot be used" in problems(**(a | {"tls_key_file": b["tls_key_file"]}))[0]
    assert "cannot be used" in problems(**(a | {"tls_key_file": str(tmp_path / "none")}))[0]
    assert "without api.tls_cert_file" in problems(tls_client_ca_file=a["tls_cert_file"])[0]
