"""No secret of the configuration stands in a reply or in the log, whatever is asked or is wrong."""

import re
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from ringfence_service.config.tokens import entry_of
from tests.broker.conftest import NewWorld
from tests.broker.service import configuration, ringfence
from tests.support.waiting import eventually
from tools.broker.cluster import Broker

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


def test_no_reply_and_no_line_of_the_log_holds_one(
    broker: Broker, tmp_path: Path, new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = broker.client_properties
    for name, value in secrets(tmp_path).items():
        if name.removeprefix("KAFKA_").lower().replace("_", ".") not in client:
            monkeypatch.setenv(name, value)
    service = new_world(client, count=100).started()
    eventually(lambda: service.is_ready, service)
    document = service.ask("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).text
    paths = set(re.findall(r'"(/[a-z0-9:/{}_.-]*)":\{', document)) | {"/", "/nothing"}
    assert len(paths) > 15
    for path, who in product(paths, (f"Bearer {TOKEN}", f"Bearer {PEER}", f"Bearer {TOKEN}y", "")):
        for method in ("GET", "POST", "PUT", "DELETE"):
            headers = {"Authorization": who} if who else {}
            told = service.ask(re.sub(r"\{\w+\}", "1", path), None, method, headers)
            assert told.status, (method, path)
            assert CANARY not in str(told), (method, path)
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
    nobody, route = {"bootstrap.servers": "127.0.0.1:1"}, '[[routes]]\ninputs = ["a"]'
    config.write_text(configuration(nobody, "secret", tmp_path, rest=route))
    files = {k: str(tmp_path / v) if v in {"bare", "short"} else v for k, v in wrong.items()}
    environ = {**secrets(tmp_path), **files, "RINGFENCE_API__PORT": "0"}
    said = ringfence(command, "--config", str(config), **environ)
    assert said.returncode != 0
    assert CANARY not in said.stdout + said.stderr
    assert said.stdout + said.stderr
