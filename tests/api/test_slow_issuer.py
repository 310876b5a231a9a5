"""A slow issuer: it keeps those waiting who need its keys, and only few of them."""

import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from ringfence_api.app import create_app
from ringfence_api.auth import oidc as jwks
from ringfence_api.auth.authenticate import Authenticator
from ringfence_api.ports import ServiceView
from ringfence_api.server import serve_in_thread
from tests.api.guarded import TOKENS, claims, settings, signed
from tests.support.waiting import LIMIT_S

STRANGERS = 60


@contextmanager
def dripping() -> Iterator[str]:
    """Where an issuer begins an answer and never ends it."""
    over = threading.Event()

    class Drip(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
            while not over.wait(0.02):
                try:
                    self.wfile.write(b"x")
                except OSError:
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/keys"
        finally:
            over.set()
            server.shutdown()


@contextmanager
def waiting_on(url: str, view: ServiceView, folder: Path) -> Iterator[str]:
    api = settings(folder, oidc_jwks_url=url)
    handle = serve_in_thread(create_app(replace(view, access=Authenticator(api))), "127.0.0.1", 0)
    try:
        yield handle.url
    finally:
        handle.stop()


def test_a_slow_issuer_keeps_nobody_else_waiting(
    view: ServiceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_MAX_S", LIMIT_S)
    stranger = {"Authorization": f"Bearer {signed(claims(), kid='made-up')}"}
    known = {"Authorization": f"Bearer {TOKENS['admin']}"}
    with (
        ThreadPoolExecutor(STRANGERS) as pool,
        dripping() as keys,
        waiting_on(keys, view, tmp_path) as url,
    ):
        asked: list[Future[httpx2.Response]] = [
            pool.submit(httpx2.get, f"{url}/v1/info", headers=stranger, timeout=LIMIT_S)
            for _ in range(STRANGERS - 1)
        ]
        token = {"token": stranger["Authorization"].removeprefix("Bearer ")}
        asked.append(pool.submit(httpx2.post, f"{url}/login", data=token, timeout=LIMIT_S))
        waits = set(asked)
        while len(waits) > jwks.WAITING_MAX:
            done, waits = wait(waits, timeout=LIMIT_S, return_when=FIRST_COMPLETED)
            assert done
            for refused in (each.result() for each in done):
                assert refused.status_code == 503
                assert int(refused.headers["Retry-After"]) > 0
        limit_s = LIMIT_S / 10
        assert httpx2.get(f"{url}/v1/dead-letters", headers=known, timeout=limit_s).is_success
        clear = f"{url}/v1/addresses/orders:clear"
        assert httpx2.post(clear, headers=known, timeout=limit_s).is_success
        assert not any(each.done() for each in waits)


def test_an_answer_that_drips_ends_at_the_deadline_of_the_whole(
    view: ServiceView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "FETCH_MAX_S", 0.5)
    headers = {"Authorization": f"Bearer {signed(claims())}"}
    with dripping() as keys, waiting_on(keys, view, tmp_path) as url:
        refused = httpx2.get(f"{url}/v1/info", headers=headers, timeout=LIMIT_S / 10)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
