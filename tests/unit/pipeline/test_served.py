"""The jobs go by the service's file, read where no service is, and by what was set since."""

from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.reconcile.settings import memory_of
from pipeline.served import overlaid, read_config
from service.config import Config
from service.overlay import Overlay
from service.revisions import Revisions


def config(tmp_path: Path, rest: str) -> Config:
    file = tmp_path / "ringfence.toml"
    file.write_text(f'[kafka]\n"bootstrap.servers" = "b:1"\n{rest}', "utf-8")
    return read_config(file)


def test_the_files_of_the_api_need_not_be_here(tmp_path: Path) -> None:
    api = """
host = "0.0.0.0"
auth = "tokens"
tokens_file = "/etc/ringfence-api/tokens"
peer_token_file = "/etc/ringfence-api/peer-token"
session_key_file = "/etc/ringfence-api/session-key"
tls_cert_file = "/etc/ringfence-api-tls/tls.crt"
tls_key_file = "/etc/ringfence-api-tls/tls.key"
"""
    read = config(tmp_path, f'[[routes]]\ninputs = ["b"]\n[api]\n{api}')
    assert read.api.tokens_file == "/etc/ringfence-api/tokens"


def test_nor_what_sends_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.tracing_checks.find_spec", lambda _name: None)
    traced = '[[routes]]\ninputs = ["b"]\n[tracing]\nendpoint = "http://collector:4318"\n'
    assert config(tmp_path, traced).tracing.endpoint == "http://collector:4318"


def test_a_file_that_is_wrong_is_told_as_the_service_tells_it(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"id_cache_sise"):
        config(tmp_path, '[[routes]]\ninputs = ["b"]\n[addresses."#"]\nid_cache_sise = 3\n')


def test_what_was_set_over_rest_lies_over_the_file(tmp_path: Path) -> None:
    file = config(tmp_path, '[[routes]]\ninputs = ["b"]\n[addresses."#"]\nid_cache_size = 3\n')
    overlay = Overlay().with_address("#", {"id_cache_size": 9}, in_file=True)
    written = Revisions().records(overlay, actor="me", reason="", time_ms=0)
    records = [(each.key, each.value, offset) for offset, each in enumerate(written)]
    found = overlaid(file, [(b'["session","p"]', b"{}", 0), *records])
    assert memory_of(found.addresses, "b").size == 9
    assert memory_of(file.addresses, "b").size == 3
