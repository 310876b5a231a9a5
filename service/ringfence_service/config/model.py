"""Configuration model: the sections as frozen values, each key with its bounds and its default.

Field names are the keys of the file. Values are validated in `keys.py`, which evaluates the
annotations, and by no other module again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

if TYPE_CHECKING:
    from pydantic import Field

    from ringfence_service.config.addresses import AddressBook
    from ringfence_service.config.kafka_properties import KafkaSettings
    from ringfence_service.config.keys import (
        Algorithm,
        AnyCase,
        AnyText,
        Claim,
        Distinct,
        File,
        Folder,
        Group,
        Host,
        HostName,
        IdTemplate,
        Input,
        Instance,
        Password,
        PlainUrl,
        Port,
        RoleOf,
        RouteName,
        Template,
        Topic,
        Url,
        User,
    )

EXPRESSION_MARKER: Final = "^"
"""First character of an input that is a regular expression."""

MissingOffset = Literal["earliest", "latest", "fail"]

LostOffset = Literal["fail", "earliest", "latest"]

ResetOffset = Literal["fail", "keep_state", "clear_state"]

ManagedBy = Literal["rest", "file"]

FastPath = Literal["native", "python"]

Scope = Literal["address", "partition"]

Auth = Literal["", "none", "tokens", "oidc", "tokens+oidc"]

LogLevel = Literal["debug", "info", "warning", "error"]

LogFormat = Literal["auto", "json", "text"]

MissingId = Literal["pass", "stamp", "dead_letter"]
OnPartitionsAdded = Literal["fail", "keep"]


COMMIT_GRACE_MS: Final = 10_000
"""How long past the transaction timeout a commit of unknown outcome is retried.

By default the broker looks for timed-out transactions every ten seconds.
"""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`[service]`: the consumer group, its batches, timeouts and state."""

    group_id: Group = "ringfence"
    instance: Instance = "0"
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    state_dir: Folder = Path("state-data")
    batch_records_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    batch_bytes_max: Annotated[int, Field(ge=1024 * 1024, le=1024**3)] = 64 * 1024 * 1024
    batch_wait_ms: Annotated[int, Field(ge=1, le=10_000)] = 20
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 10_000
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=1_800_000)] = 10_000
    cache_memory_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    by_address_partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    internal_replication: Literal[-1] | Annotated[int, Field(ge=1, le=100)] = -1
    create_topics: bool = False
    on_missing_offset: MissingOffset = "earliest"
    on_lost_offset: LostOffset = "fail"
    on_reset_offset: ResetOffset = "fail"
    managed_by: ManagedBy = "rest"
    fast_path: FastPath = "native"


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`[api]`: where the admin API listens, and who may use it; port 0 is any free port."""

    host: Host = "127.0.0.1"
    port: Port = 8080
    advertised_url: PlainUrl = ""
    allowed_hosts: Distinct[HostName] = ()
    peer_token_file: File = ""
    auth: Auth = ""
    tokens_file: File = ""
    oidc_issuer: Url = ""
    oidc_audience: AnyText = ""
    oidc_jwks_url: Url = ""
    oidc_algorithms: Distinct[Algorithm] = ("RS256", "ES256", "EdDSA")
    oidc_leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    oidc_name_claim: Claim = "sub"
    oidc_roles_claim: Claim = "roles"
    oidc_roles: Distinct[RoleOf] = ()
    session_max_s: Annotated[int, Field(ge=60, le=86_400)] = 3_600
    session_key_file: File = ""
    protect_metrics: bool = False
    metrics_addresses: bool = False
    probe_port: Port = 0
    tls_cert_file: File = ""
    tls_key_file: File = ""
    tls_client_ca_file: File = ""
    connections_max: Annotated[int, Field(ge=8, le=65_535)] = 256
    connections_per_address_max: Annotated[int, Field(ge=4, le=65_535)] = 64
    body_bytes_max: Annotated[int, Field(ge=1_024, le=1024**3)] = 16 * 1024 * 1024
    audit_records_max: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000

    @property
    def own_url(self) -> str:
        """Return the URL of the API on this machine."""
        scheme = "https" if self.tls_cert_file else "http"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - not bound
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def takes_tokens(self) -> bool:
        """Whether the API accepts tokens of the tokens file."""
        return "tokens" in self.auth

    @property
    def takes_oidc(self) -> bool:
        """Whether the API accepts tokens of the OIDC issuer."""
        return "oidc" in self.auth

    @property
    def asks_who(self) -> bool:
        """Whether a request has to be authenticated."""
        return self.takes_tokens or self.takes_oidc


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`[log]`: level and format of the log on stderr."""

    level: Annotated[LogLevel, AnyCase] = "info"
    format: LogFormat = "auto"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`[tracing]`: where spans are exported, and for which part of transactions; off by default."""

    endpoint: Url = ""
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    links_max: Annotated[int, Field(ge=0, le=128)] = 32


@dataclass(frozen=True, slots=True)
class SchemaRegistrySettings:
    """`[schema_registry]`: where the schemas of payloads are read, and how; none by default."""

    url: PlainUrl = ""
    user: User = ""
    password: Password = field(default="", repr=False)
    tls_ca_file: File = ""
    timeout_ms: Annotated[int, Field(ge=100, le=10_000)] = 2_000


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One of `[[routes]]`: its inputs, address, id and targets."""

    name: RouteName = ""
    inputs: Distinct[Input] = ()
    scope: Scope = "address"
    address: Template = "{topic}"
    id: IdTemplate = ""
    output: Template = "{topic}.unique"
    dead_letter: Template = "{topic}.dlq"
    allowed_outputs: Distinct[Topic] = ()
    reply_topics: Distinct[Topic] = ()
    missing_id: MissingId = "pass"
    on_partitions_added: OnPartitionsAdded = "fail"


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """`[bridge]`: which topics of one cluster are forwarded to which of another, and how."""

    topics: Distinct[Input] = ()
    target_topic: Template = "{topic}"
    use_duplicate_detection: bool = True
    keep_partition: bool = True
    group_id: Group = "ringfence-bridge"
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=240_000)] = 10_000
    dead_letter: Template = "{group_id}.dead-letters"


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one instance."""

    kafka: KafkaSettings
    service: ServiceSettings
    api: ApiSettings
    routes: tuple[RouteSettings, ...]
    addresses: AddressBook
    log: LogSettings = field(default_factory=LogSettings)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    schema_registry: SchemaRegistrySettings = field(default_factory=SchemaRegistrySettings)
