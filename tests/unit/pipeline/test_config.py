"""The file of the service is read by jobs that run where no service is."""

from pathlib import Path

import pytest

from ringfence_pipeline.config import read_config
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.templates import _field
from ringfence_service.config.model import Config
from ringfence_service.dedup.field import field_of


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
    monkeypatch.setattr("ringfence_service.config.validation.find_spec", lambda _name: None)
    traced = '[[routes]]\ninputs = ["b"]\n[tracing]\nendpoint = "http://collector:4318"\n'
    assert config(tmp_path, traced).tracing.endpoint == "http://collector:4318"


def test_an_invalid_file_is_reported_as_the_service_reports_it(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"id_cache_sise"):
        config(tmp_path, '[[routes]]\ninputs = ["b"]\n[addresses."#"]\nid_cache_sise = 3\n')


def test_a_route_that_reads_schemas_is_refused_since_no_registry_is_asked(tmp_path: Path) -> None:
    registry = '[schema_registry]\nurl = "http://registry:8081"\n'
    config(tmp_path, f'[[routes]]\ninputs = ["b"]\n{registry}')
    with pytest.raises(PipelineError, match="route 'b' reads payloads by their schemas") as refused:
        config(tmp_path, f'[[routes]]\ninputs = ["b"]\nid = "{{schema:/id}}"\n{registry}')
    assert refused.value.exit_code == USAGE


def test_nor_is_what_reads_schemas_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence_service.config.validation.find_spec", lambda _name: None)
    registry = '[schema_registry]\nurl = "http://registry:8081"\n'
    read = config(tmp_path, f'[[routes]]\ninputs = ["b"]\n{registry}')
    assert read.schema_registry.url == "http://registry:8081"


def test_a_column_of_what_a_schema_describes_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"{schema:/id} needs a schema registry"):
        _field(field_of("schema:/id"))
