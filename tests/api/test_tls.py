"""The API over TLS: who it is, who may connect, and new certificates while it runs."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trustme

from ringfence_api.app import create_app
from ringfence_api.ports import ServiceView
from ringfence_api.server import ServerHandle, serve_in_thread
from ringfence_api.tls_certificates import TlsCertificates
from ringfence_service.config.model import ApiSettings
from tests.support.waiting import LIMIT_S


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def renewed(folder: Path, authority: trustme.CA) -> dict[str, str]:
    made = authority.issue_cert("127.0.0.1")
    for name, pem in (("crt", made.cert_chain_pems[0]), ("key", made.private_key_pem)):
        pem.write_to_path(str(folder / f"new.{name}"))
        (folder / f"new.{name}").replace(folder / f"api.{name}")
    return {"tls_cert_file": str(folder / "api.crt"), "tls_key_file": str(folder / "api.key")}


@contextmanager
def served(view: ServiceView, certificates: TlsCertificates) -> Iterator[ServerHandle]:
    handle = serve_in_thread(create_app(view), "127.0.0.1", 0, certificates.context)
    try:
        yield handle
    finally:
        handle.stop()


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def serial_of(url: str, context: ssl.SSLContext) -> object:
    with httpx2.stream("GET", f"{url}/livez", timeout=LIMIT_S, verify=context) as answer:
        assert answer.status_code == 200
        return (
            answer.extensions["network_stream"]
            .get_extra_info("ssl_object")
            .getpeercert()["serialNumber"]
        )


def test_it_speaks_tls_and_nothing_else(
    view: ServiceView, authority: trustme.CA, tmp_path: Path
) -> None:
    with served(view, TlsCertificates(ApiSettings(**renewed(tmp_path, authority)))) as handle:  # type: ignore[arg-type]
        assert handle.url.startswith("https://127.0.0.1:")
        assert (
            httpx2.get(
                f"{handle.url}/livez", timeout=LIMIT_S, verify=trusting(authority)
            ).status_code
            == 200
        )
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{handle.url}/livez", timeout=LIMIT_S)
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(f"{handle.url.replace('https', 'http')}/livez", timeout=LIMIT_S)


def test_a_new_certificate_is_taken_and_one_that_does_not_fit_its_key_is_not(
    view: ServiceView, authority: trustme.CA, tmp_path: Path
) -> None:
    certificates = TlsCertificates(ApiSettings(**renewed(tmp_path, authority)))  # type: ignore[arg-type]
    context = trusting(authority)
    with served(view, certificates) as handle:
        first = serial_of(handle.url, context)
        certificates.reload()
        assert serial_of(handle.url, context) == first
        renewed(tmp_path, authority)
        certificates.reload()
        second = serial_of(handle.url, context)
        assert second != first
        (tmp_path / "api.key").write_text("no key")
        certificates.reload()
        assert serial_of(handle.url, context) == second
        (tmp_path / "api.key").unlink()
        certificates.reload()
        assert serial_of(handle.url, context) == second


@pytest.mark.parametrize("is_known", [True, False])
def test_with_an_authority_of_clients_only_theirs_connect(
    view: ServiceView,
    authority: trustme.CA,
    tmp_path: Path,
    is_known: bool,  # noqa: FBT001 - as pytest hands it
) -> None:
    clients, others = trustme.CA(), trustme.CA()
    clients.cert_pem.write_to_path(str(tmp_path / "clients.crt"))
    files = renewed(tmp_path, authority) | {"tls_client_ca_file": str(tmp_path / "clients.crt")}
    context = trusting(authority)
    (clients if is_known else others).issue_cert("client.example").configure_cert(context)
    with served(view, TlsCertificates(ApiSettings(**files))) as handle:  # type: ignore[arg-type]
        url = f"{handle.url}/livez"
        if is_known:
            assert httpx2.get(url, timeout=LIMIT_S, verify=context).status_code == 200
        else:
            with pytest.raises(httpx2.HTTPError):
                httpx2.get(url, timeout=LIMIT_S, verify=context)


def test_new_authorities_of_clients_are_taken_and_those_before_are_not_any_more(
    view: ServiceView, authority: trustme.CA, tmp_path: Path
) -> None:
    first, second = trustme.CA(), trustme.CA()
    first.cert_pem.write_to_path(str(tmp_path / "clients.crt"))
    files = renewed(tmp_path, authority) | {"tls_client_ca_file": str(tmp_path / "clients.crt")}
    certificates = TlsCertificates(ApiSettings(**files))  # type: ignore[arg-type]

    def connects(clients: trustme.CA) -> bool:
        context = trusting(authority)
        clients.issue_cert("client.example").configure_cert(context)
        try:
            answer = httpx2.get(f"{handle.url}/livez", timeout=LIMIT_S, verify=context)
        except httpx2.HTTPError:
            return False
        return answer.is_success

    with served(view, certificates) as handle:
        assert (connects(first), connects(second)) == (True, False)
        second.cert_pem.write_to_path(str(tmp_path / "new.crt"))
        (tmp_path / "new.crt").replace(tmp_path / "clients.crt")
        certificates.reload()
        assert (connects(first), connects(second)) == (False, True)
