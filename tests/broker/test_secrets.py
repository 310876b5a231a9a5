"""No secret of the configuration stands in a reply or in the log, whatever is asked or is wrong."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from service.tokens import entry_of
from tests.broker.service import REPOSITORY
from tests.broker.world import World
from tests.waiting import eventually
from tools.broker.cluster import Broker
from tools.broker.config import _free_port as free_port

pytestmark = pytest.mark.broker

CANARY: Final = "canary7f3a"
PROPERTIES: Final = (
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
)
TOKEN: Final = f"{CANARY}-token-".ljust(48, "x")
PEER: Final = f"{CANARY}-peer-".ljust(48, "x")
SIGNING: Final = f"{CANARY}-signing-".ljust(48, "x")


def secrets(folder: Path) -> dict[str, str]:
    """Every secret that there is, as variables of the environment and files."""
    line = entry_of("ada", "admin,payload:read", TOKEN).line
    for name, text in (("tokens", line), ("peer", PEER), ("signing", SIGNING)):
        (folder / name).write_text(text)
    return {
        "RINGFENCE_API__AUTH": "tokens",
        "RINGFENCE_API__TOKENS_FILE": str(folder / "tokens"),
        "RINGFENCE_API__PEER_TOKEN_FILE": str(folder / "peer"),
        "RINGFENCE_API__SESSION_KEY_FILE": str(folder / "signing"),
        **{f"KAFKA_{name.upper().replace('.', '_')}": CANARY for name in PROPERTIES},
    }


def answer(port: int, method: str, path: str, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", method=method, headers=dict(headers)
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as told:  # noqa: S310
            return f"{told.headers}{told.read().decode()}"
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"{refusal.headers}{refusal.read().decode()}"


def test_no_reply_and_no_line_of_the_log_holds_one(
    broker: Broker,
    tmp_path: Path,
    topic_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    properties = {**broker.client_properties}
    for name, value in secrets(tmp_path).items():
        if name.removeprefix("KAFKA_").lower().replace("_", ".") not in properties:
            monkeypatch.setenv(name, value)
    port = free_port(0)
    with World(properties, tmp_path, topic_name("secret"), count=100) as world:
        world.create()
        service = world.service(port)
        service.start()
        eventually(lambda: service.get("/readyz")[0] == 200, service)
        document = answer(port, "GET", "/openapi.json", {"Authorization": f"Bearer {TOKEN}"})
        paths = set(re.findall(r'"(/[a-z0-9:/{}_.-]*)":\{', document)) | {"/", "/nothing"}
        assert len(paths) > 15
        for path in paths:
            for credentials in (f"Bearer {TOKEN}", f"Bearer {PEER}", f"Bearer {TOKEN}y", ""):
                for method in ("GET", "POST", "PUT", "DELETE"):
                    headers = {"Authorization": credentials} if credentials else {}
                    told = answer(port, method, re.sub(r"\{\w+\}", "1", path), headers)
                    assert CANARY not in told, (method, path)
        service.stop()
        assert CANARY not in service.log.read_text()


WRONG: Final = {
    "a wrong mechanism": {"KAFKA_SASL_MECHANISM": "NONE", "KAFKA_SECURITY_PROTOCOL": "SASL_SSL"},
    "a wrong protocol": {"KAFKA_SECURITY_PROTOCOL": "TLS"},
    "a key that is none": {"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEY_PEM": CANARY},
    "a keystore that is none": {
        "KAFKA_SECURITY_PROTOCOL": "SSL",
        "KAFKA_SSL_KEYSTORE_LOCATION": "/dev/null",
    },
    "a mistyped name": {"KAFKA_SASL_PASSWORT": CANARY},
    "a token in place of its digest": {"RINGFENCE_API__TOKENS_FILE": "bare"},
    "no file for the peers": {"RINGFENCE_API__PEER_TOKEN_FILE": "short"},
}


@pytest.mark.parametrize(
    ("command", "what"),
    [*product(["check"], WRONG), *product(["serve"], ["a wrong mechanism", "a mistyped name"])],
)
def test_nor_does_what_is_said_of_a_wrong_value(tmp_path: Path, command: str, what: str) -> None:
    wrong = WRONG[what]
    (tmp_path / "bare").write_text(f"ada admin {TOKEN}\n")
    (tmp_path / "short").write_text(CANARY)
    config = tmp_path / "ringfence.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[service]\nstate_dir = "{tmp_path}"\n'
        '[[routes]]\ninputs = ["a"]\n'
    )
    files = {k: str(tmp_path / v) if v in {"bare", "short"} else v for k, v in wrong.items()}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "RINGFENCE_"))}
    said = subprocess.run(
        [sys.executable, "-m", "service.cli", command, "--config", str(config)],
        cwd=REPOSITORY,
        env={**clean, **secrets(tmp_path), **files, "RINGFENCE_API__PORT": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert said.returncode != 0
    assert CANARY not in said.stdout + said.stderr
    assert said.stdout + said.stderr
