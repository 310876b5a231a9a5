"""Configuration model: the sections as frozen values, each key with its bounds and its default.

Field names are the keys of the file, and their docstrings their descriptions in
docs/configuration.md (Markdown). Values are validated in `keys.py`, which evaluates the
annotations, and by no other module again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from ringfence_service.config.possible_addresses import Shares

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

MissingOffset = Literal["earliest", "latest", "fail"]

LostOffset = Literal["fail", "earliest", "latest"]

ResetOffset = Literal["fail", "keep_state", "clear_state"]

ManagedBy = Literal["rest", "file"]

Standby = Literal["off", "all"]

FastPath = Literal["native", "python"]

Scope = Literal["address", "id", "partition"]

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
    """Consumer group; internal topics are named `<group_id>.…`."""
    instance: Instance = "0"
    """Name of this instance within the group; every instance needs its own."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that decide; they share the partitions."""
    state_dir: Folder = Path("state-data")
    """Folder of the local copy of the state; losing it costs a restore."""
    batch_records_max: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The most records that one transaction takes."""
    batch_bytes_max: Annotated[int, Field(ge=1024 * 1024, le=1024**3)] = 64 * 1024 * 1024
    """The most bytes that one transaction takes."""
    batch_wait_ms: Annotated[int, Field(ge=1, le=10_000)] = 20
    """For how long a batch may fill, from the last read of the one before: most of the latency.
    Probes and queries do not wait for it.
    """
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 10_000
    """After this time the broker ends a transaction; the service adds records to one for an eighth
    of it.
    """
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=1_800_000)] = 10_000
    """After this time the group gives the partitions of a silent worker to others."""
    cache_memory_mb: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """Memory for ids, in MiB, shared by the workers of an instance: some 60 bytes each (200 without
    the compiled fast path), or 3 (15 to 30) where an address holds many or memory is short; what
    still does not fit is read from disk again, except the largest address of a process, which stays
    in memory.
    """
    by_address_partitions: Annotated[int, Field(ge=1, le=10_000)] = 12
    """How many partitions decide records of scopes `address` and `id`; fixed once their topic
    exists.
    """
    standby: Standby = "off"
    """`all`: every instance keeps a copy of the ids of all others on its disk, so that a takeover
    replays seconds of the changelog instead of all of it: see [standby
    copies](operations.md#standby-copies).
    """
    internal_replication: Literal[-1] | Annotated[int, Field(ge=1, le=100)] = -1
    """Replicas of internal topics; -1 is the broker's default."""
    create_topics: bool = False
    """Create missing outputs and dead-letter topics [like their
    inputs](#topics-that-the-service-creates).
    """
    on_missing_offset: MissingOffset = "earliest"
    """Where a new group starts."""
    on_lost_offset: LostOffset = "fail"
    """What to do when the committed offset is gone from the log."""
    on_reset_offset: ResetOffset = "fail"
    """What to do when the offsets were reset but ids are still remembered."""
    managed_by: ManagedBy = "rest"
    """`file` makes the file the only source of settings: settings made over REST are ignored, and
    writes are refused with 403.
    """
    fast_path: FastPath = "native"
    """`native` has plain records read, decided and sent by compiled code, where `make` or the
    package has built it for this version of confluent-kafka and the version is one that was
    verified (2.16.1); elsewhere, and with `python`, the same is done in Python. `ringfence status`
    and `/v1/info` show which runs, and why if it is not this one. `RINGFENCE_FAST_PATH` sets it
    too.
    """


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """`[api]`: where the admin API listens, and who may use it; port 0 is any free port."""

    host: Host = "127.0.0.1"
    """Where the API listens."""
    port: Port = 8080
    """The port of the API; 0 is any free one."""
    advertised_url: PlainUrl = ""
    """Where other instances reach this one: `http://host:port`, with a path where a proxy adds one;
    by default the address that it listens on, if that names a machine. Never the URL of a load
    balancer: see [operations.md](operations.md#many-instances).
    """
    allowed_hosts: Distinct[HostName] = ()
    """Host names, without a port, that a request may call the service by. Addresses, the names of
    loopback, `host` and the host of `advertised_url` are always allowed. If empty, any name is
    allowed where the API requires authentication and listens beyond loopback; everywhere else other
    names get 421, so that a page in a browser cannot reach the API under a name of its own.
    """
    peer_token_file: File = ""
    """A secret that the instances share, one line of at least 32 visible ASCII characters: they
    sign their requests to each other with it, and never send it.
    """
    auth: Auth = ""
    """Who may use the API: `"tokens"`, `"oidc"`, `"tokens+oidc"`, or `"none"`: anyone. If empty it
    is `"none"` on loopback, and elsewhere the service does not start.
    """
    tokens_file: File = ""
    """Lines `name roles sha256:digest`, as `ringfence token` makes them; read again when it
    changes.
    """
    oidc_issuer: Url = ""
    """The issuer whose tokens (JWT) are accepted."""
    oidc_audience: AnyText = ""
    """The audience that a token of the issuer must name."""
    oidc_jwks_url: Url = ""
    """Where the issuer publishes its keys; if empty, its discovery document says so."""
    oidc_algorithms: Distinct[Algorithm] = ("RS256", "ES256", "EdDSA")
    """Signature algorithms that are accepted; symmetric ones never are."""
    oidc_leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    """By how much clocks may differ."""
    oidc_name_claim: Claim = "sub"
    """The claim with the user's name; in the audit it is `oidc:<name>`."""
    oidc_roles_claim: Claim = "roles"
    """The claim that holds roles, a list or words; dots lead into nested claims:
    `"realm_access.roles"`.
    """
    oidc_roles: Distinct[RoleOf] = ()
    """Which value gives which role: `["staff=viewer", "sre=admin"]`; if empty, values are the roles
    themselves.
    """
    session_max_s: Annotated[int, Field(ge=60, le=86_400)] = 3_600
    """How long a browser stays logged in."""
    session_key_file: File = ""
    """A secret, one line of at least 32 visible ASCII characters, that signs the cookies of
    browsers; if empty, each process makes one, and a browser that reaches another instance has to
    log in again.
    """
    protect_metrics: bool = False
    """`/metrics` needs the role `viewer` too."""
    metrics_addresses: bool = False
    """Where the API requires authentication, `/metrics` names addresses also to requests without a
    token; by default these see all addresses as `_other`, and a token with the role `viewer` sees
    each.
    """
    probe_port: Port = 0
    """A second port, always plain http, on a thread of its own, with only `/livez`, `/readyz`,
    `/startupz` and `/metrics`: load on the API does not delay them. It takes 64 connections, 16 of
    one address. 0: no such port.
    """
    tls_cert_file: File = ""
    """The certificate chain, as PEM: the API uses TLS; read again when it changes."""
    tls_key_file: File = ""
    """The key of the certificate, as PEM; read again when it changes."""
    tls_client_ca_file: File = ""
    """Only clients with a certificate of these authorities may connect; read again when it changes;
    including probes, unless they use `probe_port`.
    """
    connections_max: Annotated[int, Field(ge=8, le=65_535)] = 256
    """How many connections the API holds at once; the next is closed and counted in
    `ringfence_http_connections_refused_total`. Never more than half of the files that the process
    may open (`ulimit -n`, which the service raises to the hard limit, at most 65,536).
    """
    connections_per_address_max: Annotated[int, Field(ge=4, le=65_535)] = 64
    """How many connections one client address may hold (for IPv6 one network of 64 bits). Behind a
    proxy all clients have its address.
    """
    body_bytes_max: Annotated[int, Field(ge=1_024, le=1024**3)] = 16 * 1024 * 1024
    """The largest body of a change; an import (`application/x-ndjson`) may be larger, unless sent
    with an `Idempotency-Key`. Ten times as much is what the bodies of all changes in progress may
    take of the memory of the supervisor. A query has at most 1 MiB.
    """
    audit_records_max: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """How many audit records are kept."""

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
    """The lowest level that is logged."""
    format: LogFormat = "auto"
    """`json`, one object on a line; `text`, for people; `auto`: text on a terminal and JSON
    everywhere else.
    """


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """`[tracing]`: where spans are exported, and for which part of transactions; off by default."""

    endpoint: Url = ""
    """Where spans are sent by OTLP over HTTP, such as `http://collector:4318`; empty: tracing is
    off.
    """
    sample_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """The fraction of transactions that get a span."""
    links_max: Annotated[int, Field(ge=0, le=128)] = 32
    """The largest number of traces of its records that a span is linked to."""


@dataclass(frozen=True, slots=True)
class SchemaRegistrySettings:
    """`[schema_registry]`: where the schemas of payloads are read, and how; none by default."""

    url: PlainUrl = ""
    """The URL of a schema registry with the API of Confluent Schema Registry; tested with Apicurio,
    whose URL ends with `/apis/ccompat/v7`.
    """
    user: User = ""
    """For basic authentication."""
    password: Password = field(default="", repr=False)
    """For basic authentication: better as `RINGFENCE_SCHEMA_REGISTRY__PASSWORD`, or in the file
    that `RINGFENCE_SCHEMA_REGISTRY__PASSWORD_FILE` names.
    """
    tls_ca_file: File = ""
    """Certificates of the authorities that an https URL is checked against, as PEM; empty: those of
    the Python package certifi.
    """
    timeout_ms: Annotated[int, Field(ge=100, le=10_000)] = 2_000
    """Milliseconds that a request may take, from connecting to the last byte of the response."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """One of `[[routes]]`: its inputs, address, id and targets."""

    name: RouteName = ""
    """Shown in metrics and problems; by default the first input."""
    inputs: Distinct[Input] = ()
    """Topic names, or one regular expression that starts with `^`, in [RE2's
    syntax](https://github.com/google/re2/wiki/Syntax): it takes time in proportion to a name and
    has no lookahead and no backreferences. It finds no topics that begin with `__`; name these. A
    topic has one route.
    """
    scope: Scope = "address"
    """`"address"`: an id counts on any partition; `"id"`: the same, and all workers share an
    address; `"partition"`: an id counts within the input partition that it arrived on; see below.
    """
    address: Template = "{topic}"
    """The address whose memory decides; may hold `{topic}`, `{key}` and the
    [fields](#fields-of-templates) below.
    """
    id: IdTemplate = ""
    """How to build the id from the record: text with `{key}`, `{sha256:value}`, fields or a
    [preset](#ids-of-event-formats); the id headers are then not read.
    """
    output: Template = "{topic}.unique"
    """Where accepted records go; may hold `{topic}`, `{address}` and fields."""
    dead_letter: Template = "{topic}.dlq"
    """Where records go that are refused; may hold `{topic}`, `{address}` and fields."""
    allowed_outputs: Distinct[Topic] = ()
    """Required where the record determines its output: the topics that it may name."""
    reply_topics: Distinct[Topic] = ()
    """The topics that a record may name in `_REPLY_TO`, to get a [reply](wire-contract.md#replies)
    that says how it was decided; empty: no replies.
    """
    missing_id: MissingId = "pass"
    """A record without an id: `pass` it, `stamp` it with its position, or `dead_letter`. A record
    that is passed is not checked: it is counted as [unchecked](operations.md#ringfenceunchecked).
    """
    on_partitions_added: OnPartitionsAdded = "fail"
    """Scope `"partition"` only: `keep` continues when an input has got more partitions: keys may
    have moved.
    """

    @property
    def is_repartitioned(self) -> bool:
        """Whether its records go through the repartition topic, to the partition that decides."""
        return self.scope != "partition"


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """`[bridge]`: which topics of one cluster are forwarded to which of another, and how."""

    topics: Distinct[Input] = ()
    """Topic names, or one regular expression that starts with `^`, as in `inputs`."""
    target_topic: Template = "{topic}"
    """Where records go; may hold `{topic}`."""
    use_duplicate_detection: bool = True
    """Stamp records that have neither a duplicate id nor `_PUBLISHER` with `_SEQ`: `_DUPL_ID`
    becomes `<source's cluster id>/<topic>/<partition>/<offset>`.
    """
    keep_partition: bool = True
    """A record keeps the number of its partition, so the target needs as many; otherwise murmur2 of
    its key chooses the partition, and without a key its source partition.
    """
    group_id: Group = "ringfence-bridge"
    """Consumer group at the source; bridges of one group share the partitions."""
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=240_000)] = 10_000
    """After this time the group gives the partitions of a silent bridge to others; when the target
    has accepted nothing for as long, everything that was not acknowledged is read and sent again:
    raise it for a very slow link.
    """
    dead_letter: Template = "{group_id}.dead-letters"
    """Topic of the target, created by the bridge, for records that cannot be forwarded: unreadable
    header names, records that the target refuses.
    """


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

    def __post_init__(self) -> None:
        """Have the book know over how many partitions the ids of an address are spread."""
        shares = Shares.of(self.routes, self.service.by_address_partitions)
        object.__setattr__(self, "addresses", self.addresses.shared(shares))
