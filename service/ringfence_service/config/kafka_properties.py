"""Kafka properties by their librdkafka names: which exist, and which the service sets itself.

The service owns the properties that exactly-once, its consumer group or its restarts depend on;
such a property is refused with the reason and the setting to use instead. All others are passed on
unchanged. Values that may be secrets are never shown, neither in problems nor in a repr.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from ringfence_service.config.keys import GivenValue, nearest, shown
from ringfence_service.errors import ConfigIssue

_EVERY = """
    allow.auto.create.topics api.version.fallback.ms api.version.request
    api.version.request.timeout.ms bootstrap.servers broker.address.family broker.address.ttl
    broker.version.fallback client.dns.lookup client.id client.rack connections.max.idle.ms
    debug enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification https.ca.location https.ca.pem log.connection.close
    log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    message.copy.max.bytes message.max.bytes metadata.broker.list metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.oauthbearer.method sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
    socket.blocking.max.ms socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes
    socket.timeout.ms ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm
    ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
    statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""

_CONSUMER = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
    consume.callback.max.messages coordinator.query.interval.ms enable.auto.commit
    enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records offset.store.method offset.store.path offset.store.sync.interval.ms
    partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    session.timeout.ms share.acknowledgement.mode
"""

_PRODUCER = """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence
    linger.ms message.send.max.retries message.timeout.ms partitioner produce.offset.report
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms queuing.strategy request.required.acks
    request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms
    transactional.id
"""

EVERY_CLIENT: Final = frozenset(_EVERY.split())

CONSUMER_ONLY: Final = frozenset(_CONSUMER.split())

PRODUCER_ONLY: Final = frozenset(_PRODUCER.split())

Property = str | int | float | bool

SCOPES: Final = ("common", "consumer", "producer", "admin")
"""`[kafka]` itself, then its subtables."""

Owned = Mapping[str, tuple[str, str]]
"""Properties that only Ringfence may set, each with the reason and the fix."""

Elsewhere = Mapping[str, str]
"""Properties that have no effect in a table, each with the table where they have."""

SERVERS: Final = "bootstrap.servers"

_PORT_MAX = 65_535
"""The largest port of TCP, a number of 16 bits."""

DEFAULT_PORT: Final = 9092
"""The port of a bootstrap server that is written without one."""

RECEIVE: Final = "receive.message.max.bytes"
"""Limits what a zstd batch may unpack to, besides the size of a response."""

_ALIASES: Final = {"metadata.broker.list": SERVERS}
"""Aliases of properties, stored under their main name so that lookups need only that one."""

_REMOVE = "remove it"

_BYTES = "remove it: keys and values are passed on as bytes"

_JAVA_LOGIN = "remove it: set sasl.mechanism, and for OAUTHBEARER sasl.oauthbearer.method = oidc"

_PEM = "a PEM file, which keytool -exportcert -rfc -keystore FILE -alias ALIAS prints"

JAVA: Final[Mapping[str, str]] = {
    "ssl.truststore.location": f'write "ssl.ca.location" with {_PEM}',
    "ssl.truststore.password": 'remove it: a PEM file at "ssl.ca.location" has no password',
    "ssl.truststore.type": 'remove it: "ssl.ca.location" is PEM',
    "ssl.truststore.certificates": 'write them as "ssl.ca.pem"',
    "ssl.keystore.type": 'remove it: "ssl.keystore.location" is PKCS #12; PEM is named by '
    '"ssl.certificate.location" and "ssl.key.location"',
    "ssl.keystore.key": 'write it as "ssl.key.pem"',
    "ssl.keystore.certificate.chain": 'write it as "ssl.certificate.pem"',
    "ssl.protocol": "remove it: client and broker agree on the newest version of TLS",
    "ssl.enabled.protocols": "remove it: client and broker agree on the newest version of TLS",
    "sasl.jaas.config": 'write its username and password as "sasl.username" and "sasl.password"',
    "sasl.login.class": _JAVA_LOGIN,
    "sasl.login.callback.handler.class": _JAVA_LOGIN,
    "sasl.client.callback.handler.class": _JAVA_LOGIN,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "key.deserializer": _BYTES,
    "value.deserializer": _BYTES,
    "partitioner.class": "remove it: equal keys go to the partitions that Java chooses",
    "interceptor.classes": _REMOVE,
    "default.api.timeout.ms": 'write "socket.timeout.ms"',
    "max.block.ms": _REMOVE,
    "buffer.memory": "remove it; service.batch_bytes_max limits a batch",
    "send.buffer.bytes": 'write "socket.send.buffer.bytes"',
    "receive.buffer.bytes": 'write "socket.receive.buffer.bytes"',
    "schema.registry.url": "write url in [schema_registry]",
}
"""Properties of Java clients that librdkafka does not have, each with what to do instead."""

KNOWN: Final = EVERY_CLIENT | CONSUMER_ONLY | PRODUCER_ONLY

_SECRET = re.compile(r"password|passphrase|secret|\.pem$|oauthbearer\.config|key\.pem")

_OFFSETS = "input offsets are committed only in the transaction with the outputs"

_EXACTLY_ONCE = "the service sets it, and exactly-once depends on it"

_PARTITIONS = "equal keys must reach the same output partition as in Java and Spark"

_TIMEOUT = "it is derived from the transaction timeout"

_GROUP = "the service controls how partitions are assigned"

_BATCH = "a whole batch must fit the producer's queue"

OFFSET_PROPERTIES: Final = (
    "enable.auto.commit",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "offset.store.method",
    "offset.store.path",
    "offset.store.sync.interval.ms",
)
"""Properties with which the client would store or commit offsets by itself."""

OWNED_OF_CONSUMERS: Final[Owned] = {
    "isolation.level": ("messages of aborted transactions must never be read", _REMOVE),
    "check.crcs": ("a damaged message must never be read", _REMOVE),
}
"""Properties that every consumer of Ringfence sets itself."""

_OWNED: Final[Owned] = {
    **dict.fromkeys(OFFSET_PROPERTIES, (_OFFSETS, _REMOVE)),
    "auto.offset.reset": (
        "a lost offset must not skip messages silently",
        "use service.on_missing_offset and service.on_lost_offset",
    ),
    **OWNED_OF_CONSUMERS,
    "enable.partition.eof": ("the service does not use end-of-partition events", _REMOVE),
    "group.id": ("the service sets it", "use service.group_id"),
    "group.instance.id": ("it is derived from the group and the instance", "use service.instance"),
    "group.protocol": (_GROUP, _REMOVE),
    "group.protocol.type": (_GROUP, _REMOVE),
    "group.remote.assignor": (_GROUP, _REMOVE),
    "partition.assignment.strategy": (_GROUP, _REMOVE),
    "session.timeout.ms": ("the service sets it", "use service.session_timeout_ms"),
    "heartbeat.interval.ms": (
        "it is derived from the session timeout",
        "use service.session_timeout_ms",
    ),
    "transactional.id": ("it is derived from the group and the instance", "use service.instance"),
    "transaction.timeout.ms": ("the service sets it", "use service.transaction_timeout_ms"),
    "message.timeout.ms": (_TIMEOUT, "use service.transaction_timeout_ms"),
    "delivery.timeout.ms": (_TIMEOUT, "use service.transaction_timeout_ms"),
    "enable.idempotence": (_EXACTLY_ONCE, _REMOVE),
    "acks": (_EXACTLY_ONCE, _REMOVE),
    "request.required.acks": (_EXACTLY_ONCE, _REMOVE),
    "queuing.strategy": ("the order of messages depends on it", _REMOVE),
    "delivery.report.only.error": ("the offset of a changelog record is read from it", _REMOVE),
    "partitioner": (_PARTITIONS, _REMOVE),
    "batch.size": (_BATCH, "use service.batch_bytes_max"),
    "log.connection.close": ("the service must know when the client loses a connection", _REMOVE),
    "queue.buffering.max.kbytes": (_BATCH, "use service.batch_bytes_max"),
    "queue.buffering.max.messages": (_BATCH, "use service.batch_records_max"),
    "message.max.bytes": ("the limit of each topic applies", "set max.message.bytes of the topics"),
    "allow.auto.create.topics": (
        "a mistyped topic must not be created",
        "use service.create_topics for outputs and dead letters",
    ),
    "topic.blacklist": ("it would silently hide inputs", "narrow the inputs of the route"),
}

_ONE_CLUSTER: Final[Owned] = {
    SERVERS: (
        "records and the offsets that they were read up to are one transaction of one cluster",
        "write it in [kafka]; to read from another cluster, put a [bridge] before",
    )
}

_OWNED_THERE: Final[Mapping[str, Owned]] = {
    "consumer": _ONE_CLUSTER,
    "admin": _ONE_CLUSTER,
    "producer": {
        **_ONE_CLUSTER,
        "connections.max.idle.ms": (
            "the service's own value bounds when its last requests can still arrive",
            "set it in [kafka] for the other clients",
        ),
    },
}
"""Owned properties by table, beside `_OWNED`, which applies to all."""

_CONSUMER_TABLES = dict.fromkeys(CONSUMER_ONLY, "[kafka.consumer]")

_PRODUCER_TABLES = dict.fromkeys(PRODUCER_ONLY, "[kafka.producer]")

_ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "common": {},
    "consumer": _PRODUCER_TABLES,
    "producer": _CONSUMER_TABLES,
    "admin": _CONSUMER_TABLES | _PRODUCER_TABLES,
}

_IN_FLIGHT = "an idempotent producer keeps at most 5 requests in flight"

_RETRIES = "without retries a transient error would abort the transaction"

_BOUNDED: Final[Mapping[str, tuple[int, int, str]]] = {
    "max.in.flight": (1, 5, _IN_FLIGHT),
    "max.in.flight.requests.per.connection": (1, 5, _IN_FLIGHT),
    "retries": (1, 2**31 - 1, _RETRIES),
    "message.send.max.retries": (1, 2**31 - 1, _RETRIES),
}

_COUNTED: Final = (".ms", ".bytes", ".kbytes", ".messages")
"""How the names of whole numbers with a unit end."""
_WHOLE: Final = re.compile(r"-?[0-9]+")

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
}


@dataclass(frozen=True, slots=True, repr=False)
class KafkaSettings:
    """`[kafka]`: properties of all clients, and those that override them for one kind of client."""

    common: Mapping[str, Property]
    consumer: Mapping[str, Property]
    producer: Mapping[str, Property]
    admin: Mapping[str, Property]

    def __repr__(self) -> str:
        tables = (f"{table.name}={_listed(getattr(self, table.name))}" for table in fields(self))
        return f"KafkaSettings({', '.join(tables)})"


def _listed(properties: Mapping[str, Property]) -> str:
    lines = (f"{name} = {redacted(name, value)}" for name, value in properties.items())
    return f"[{', '.join(lines)}]"


def redacted(name: str, value: object) -> str:
    """Return a value as TOML, or `"***"` if it may be a secret."""
    return '"***"' if _SECRET.search(name) else shown(value)


def read_kafka(
    tables: Mapping[str, Mapping[str, GivenValue]], problems: list[ConfigIssue]
) -> KafkaSettings:
    """Assign properties to the clients that know them; each refused one adds a problem."""
    by_scope: dict[str, dict[str, Property]] = {scope: {} for scope in SCOPES}
    for scope in SCOPES:  # the common ones first, so that the subtables override them
        given, owned = tables.get(scope, {}), {**_OWNED, **_OWNED_THERE.get(scope, {})}
        for name, value in read_properties(given, owned, _ELSEWHERE[scope], problems).items():
            by_scope[_scope_of(scope, name)][name] = value
    given = tables.get("common", {})
    problems.extend(no_servers(given, "kafka", "KAFKA_BOOTSTRAP_SERVERS"))
    problems.extend(login_problems(by_scope["common"], "kafka"))
    return KafkaSettings(**by_scope)


def read_properties(
    given: Mapping[str, GivenValue], owned: Owned, elsewhere: Elsewhere, problems: list[ConfigIssue]
) -> dict[str, Property]:
    """Read the properties of one table; each refused one adds a problem and is left out."""
    accepted: dict[str, Property] = {}
    for name, each in given.items():
        problem = next(_property_problems(name, each, owned, elsewhere), None)
        if problem is not None:
            problems.append(problem)
        elif isinstance(each.value, (str, int, float)):
            accepted[_ALIASES.get(name, name)] = each.value
    return accepted


def no_servers(given: Iterable[str], table: str, variable: str) -> Iterator[ConfigIssue]:
    """Yield a problem if the properties with these names contain no bootstrap servers."""
    if SERVERS not in {_ALIASES.get(name, name) for name in given}:
        what = f'{table}."{SERVERS}" is missing'
        fix = f'write "bootstrap.servers" = "host:9092" in [{table}] or set {variable}'
        yield ConfigIssue(what, fix)


def login_problems(properties: Mapping[str, Property], table: str) -> Iterator[ConfigIssue]:
    """Yield a problem if a user is given and no mechanism: the client's default is Kerberos."""
    protocol = str(properties.get("security.protocol", "")).lower()
    has_mechanism = not {"sasl.mechanism", "sasl.mechanisms"}.isdisjoint(properties)
    if protocol.startswith("sasl") and "sasl.username" in properties and not has_mechanism:
        what = f'{table}."sasl.username" is set, and {table}."sasl.mechanism" is missing'
        yield ConfigIssue(
            what, 'write "sasl.mechanism" = "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"'
        )


def unused_properties(properties: Mapping[str, Property], table: str) -> Iterator[str]:
    """Yield a sentence for TLS or SASL that is configured and that the protocol does not use."""
    protocol = str(properties.get("security.protocol", "plaintext")).lower()
    for prefix, is_used, with_it in (
        ("ssl.", protocol.endswith("ssl"), "ssl or sasl_ssl"),
        ("sasl.", protocol.startswith("sasl"), "sasl_ssl or sasl_plaintext"),
    ):
        unused = sorted(name for name in properties if name.startswith(prefix))
        if unused and not is_used:
            yield (
                f'{table}."{unused[0]}" has no effect: security.protocol is {protocol}; set it to '
                f"{with_it}, or remove {', '.join(unused)}"
            )


def _scope_of(scope: str, name: str) -> str:
    """Return the scope to store a property in: other kinds of client would warn about it."""
    if scope == "common" and name in CONSUMER_ONLY:
        return "consumer"
    if scope == "common" and name in PRODUCER_ONLY:
        return "producer"
    return scope


def _property_problems(
    name: str, given: GivenValue, owned: Owned, elsewhere: Elsewhere
) -> Iterator[ConfigIssue]:
    """Yield what is wrong with a property, the most specific problem first."""
    if name in owned:
        reason, fix = owned[name]
        yield ConfigIssue(f"{given.name} is refused: {reason}", fix)
    if name in JAVA:
        yield java_name(name, given.name)
    if name not in KNOWN:
        table, _, rest = name.partition(".")
        scope = nearest(table, SCOPES)
        if scope and rest in KNOWN:
            what = f"{given.name} is in the table {table}, which no client has"
            yield ConfigIssue(what, f"rename the table to [kafka.{scope}]")
        near = nearest(name, KNOWN, cutoff=0.7)
        fix = f"the nearest is {near}: rename or remove it" if near else _REMOVE
        yield ConfigIssue(f"{given.name} is not a property that librdkafka knows", fix)
    if _ALIASES.get(name, name) == SERVERS and isinstance(given.value, str):
        yield from _server_problems(given)
    if name in elsewhere:
        yield ConfigIssue(f"{given.name} has no effect there", f"move it to {elsewhere[name]}")
    yield from _value_problems(name, given)


def _value_problems(name: str, given: GivenValue) -> Iterator[ConfigIssue]:
    """Yield what is wrong with the value of a property that is known and has an effect."""
    if not isinstance(given.value, (str, int, float)):
        yield ConfigIssue(
            f"{given.name} is {redacted(name, given.value)}: must be text, a number or a boolean",
            "write a list as one text with commas",
        )
    if name.endswith(_COUNTED) and not _WHOLE.fullmatch(str(given.value)):
        # librdkafka would take "5m" for 5.
        yield ConfigIssue(
            f"{given.name} is {shown(given.value)}: must be a whole number without a unit",
            f"write the number in {name.rpartition('.')[2]}",
        )
    choices = _CHOICES.get(name)
    if choices is not None and str(given.value).lower() not in choices:
        what = f"{given.name} is {shown(given.value)}: must be {' or '.join(choices)}"
        yield ConfigIssue(what, "write one of them")
    low, high, reason = _BOUNDED.get(name, (0, 0, ""))
    if reason and not low <= _number(given.value) <= high:
        yield ConfigIssue(
            f"{given.name} is {shown(given.value)}: {reason}",
            f"write a whole number from {low} to {high}, or remove it",
        )


def java_name(name: str, shown_as: str) -> ConfigIssue:
    """Return the problem of a property of `JAVA`."""
    return ConfigIssue(f"{shown_as} is a property of Java clients, not of librdkafka", JAVA[name])


def _server_problems(given: GivenValue) -> Iterator[ConfigIssue]:
    """Yield what is wrong with the form of an address in a list of bootstrap servers."""
    servers = [each.strip() for each in str(given.value).split(",")]
    if not any(servers):
        yield ConfigIssue(f"{given.name} is empty", 'write "host:9092"')
    for server in filter(None, servers):
        if re.search(r"[;\s]", server):
            what = f'{given.name} has "{server}": more than one address'
            yield ConfigIssue(what, "separate addresses with commas")
        scheme, mark, rest = server.rpartition("://")
        host, _, port = rest.partition("/")[0].rpartition(":")
        if (mark and scheme.lower() not in _CHOICES["security.protocol"]) or "/" in rest:
            what = f'{given.name} has "{server}": an address is a host and a port'
            address = rest.partition("/")[0]
            tls = " and set security.protocol" if scheme.lower() in {"https", "kafkas"} else ""
            yield ConfigIssue(what, f'write "{address}"{tls}')
        elif host and not host.endswith(":") and not 0 < _number(port) <= _PORT_MAX:
            what = f'{given.name} has "{server}", whose port is not a number from 1 to {_PORT_MAX}'
            yield ConfigIssue(what, 'write "host:9092", with the port of the broker\'s listener')


def codec_of(producer: Mapping[str, Property]) -> str | None:
    """Return the codec that these properties of a producer set, which may be `none`, or None."""
    codec = producer.get("compression.type", producer.get("compression.codec"))
    return None if codec is None else str(codec)


def compresses(producer: Mapping[str, Property]) -> bool:
    """Whether a producer with these properties compresses its batches."""
    return codec_of(producer) not in {None, "none"}


def _number(value: object) -> int:
    text = str(value)
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else -1
