"""`ringfence try`: sends one message twice to an input, and looks for both in the outputs.

Both messages have the same key, value and headers, so they are duplicates for every strategy. They
are found by their key, after the end offsets that the topics had before.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple, cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from ringfence_client.headers import (
    DUPLICATE_ID,
    MARK,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    REPEATED,
    STREAM,
    internal,
)
from ringfence_client.headers import DeadLetter as Letter
from ringfence_main.live_sample import RECORDS, TRIAL_PREFIX, LiveSample, sampled
from ringfence_service.clock import SystemClock
from ringfence_service.config.model import Config
from ringfence_service.dedup.field import (
    ContentField,
    HeaderField,
    JsonField,
    SchemaField,
    UnrenderableError,
)
from ringfence_service.dedup.route import InputRoute, resolve
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.kafka.errors import fault_of
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.metadata.effective_config import in_effect
from ringfence_service.schemas.json_text import member_of, tokens_of

PATIENCE_S: Final = 30.0
"""How long the first copy may take: a service that just started may still be joining its group."""
_AFTER_S: Final = 5.0
"""How long the second copy may take after the first."""
_REQUEST_S: Final = 30.0
"""How long the broker may take for an end of a log or for the two copies.

Only the command's user waits. A copy itself fails after four seconds (`audit_producer`).
"""


class TryMessage(NamedTuple):
    """The message to send, with a field for each that a template of the route reads; a `Record`."""

    own_key: bytes
    own_value: bytes
    headers: Sequence[tuple[str, bytes]]

    @classmethod
    def of(cls, route: InputRoute, name: str) -> "TryMessage":
        """Return the message for a route, in which every field has this text."""
        fields = route.fields()
        claims = {DUPLICATE_ID: name, PUBLISHER: name, NUMBER: "1", STREAM: "1", PREVIOUS: "0"}
        for field in fields:
            if isinstance(field, HeaderField):
                claims.setdefault(field.header, name)
        value: object = {"ringfence": "try", "id": name}
        key: object = None
        for field in sorted({each for each in fields if isinstance(each, JsonField)}, key=str):
            if field.in_key:
                key = _with_member(key, field.pointer, name)
            else:
                value = _with_member(value, field.pointer, name)
        for content in sorted({each for each in fields if isinstance(each, ContentField)}, key=str):
            if member_of(value, tokens_of(content.pointer)) is None:
                value = _with_member(value, content.pointer, name)
        return cls(
            name.encode() if key is None else json.dumps(key).encode(),
            json.dumps(value).encode(),
            [(header, text.encode()) for header, text in claims.items()],
        )

    def key(self) -> bytes:
        """Return the key."""
        return self.own_key

    def value(self) -> bytes:
        """Return the value."""
        return self.own_value

    def offset(self) -> None:
        """Return None: it has no position yet."""

    def timestamp(self) -> tuple[int, int]:
        """Return that it has no time yet."""
        return TIMESTAMP_NOT_AVAILABLE, 0


def _with_member(document: object, pointer: str, text: str) -> object:
    """Return a document with this text at a JSON pointer; an index becomes a member's name."""
    if not pointer:
        return text
    first, _, rest = pointer[1:].partition("/")
    name = first.replace("~1", "/").replace("~0", "~")
    members = document if isinstance(document, dict) else {}
    inner = _with_member(members.get(name), "/" + rest if rest else "", text)
    return {**members, name: inner}


class FoundCopy(NamedTuple):
    """One of the two messages, as found in a topic."""

    position: str
    reason: str | None
    """Why it was dead-lettered; None if it is in an output."""
    cause: str
    original: str | None
    """The position of the accepted message, as the header of a copy contains it."""
    marked: bool
    """Whether it was forwarded and marked as a duplicate."""

    @property
    def topic(self) -> str:
        """Return the topic that it is in."""
        return self.position.rpartition("-")[0]

    @property
    def fate(self) -> str:
        """Return the decision on it: accepted, duplicate or rejected."""
        if self.reason is None:
            return "duplicate" if self.marked else "accepted"
        return "duplicate" if self.reason in REPEATED else "rejected"

    def line(self) -> str:
        """Return a line of the report."""
        origin = f", a copy of {self.original}" if self.original else ""
        why = f": {self.reason}, {self.cause}" if self.fate == "rejected" else origin
        return f"{self.fate:<11}{self.position}{why}"


class TryResult(NamedTuple):
    """Positions of the two sent messages, and the copies that were found."""

    sent: tuple[str, ...]
    copies: tuple[FoundCopy, ...]
    drops: bool
    """Whether the address has `on_duplicate = "drop"`."""
    output: str = ""
    """The topic where consumers expect one of the two; empty if it is not known."""
    marks: bool = False
    """Whether the address has `on_duplicate = "mark"`, so that both go to the output."""

    @property
    def fates(self) -> list[str]:
        """Return the decisions on the copies that were found, sorted."""
        return sorted(copy.fate for copy in self.copies)

    @property
    def kept_out(self) -> bool:
        """Whether exactly one was accepted, and the other was recognised as its duplicate."""
        wanted = ["accepted"] if self.drops else ["accepted", "duplicate"]
        return not self.mixes and self.fates == wanted

    @property
    def mixes(self) -> bool:
        """Whether consumers of the output would receive both, whatever their headers say."""
        at_output = [copy for copy in self.copies if copy.topic == self.output]
        is_marked = self.marks and any(copy.marked for copy in at_output)
        return len(at_output) > 1 and not is_marked

    def lines(self) -> list[str]:
        """Return the lines of the report."""
        dropped = (
            ["duplicate  dropped, as on_duplicate says"] if self.kept_out and self.drops else []
        )
        found = [copy.line() for copy in self.copies]
        return [f"sent       {' and '.join(self.sent)}", *found, *dropped, self._conclusion()]

    def _conclusion(self) -> str:
        if self.mixes and "duplicate" in self.fates:
            return (
                f"Both are in the output {self.output}, so consumers receive the copy too: see "
                "output, dead_letter and on_duplicate."
            )
        if self.kept_out:
            marked = "Both came out, the copy marked as a duplicate, as on_duplicate says."
            return marked if self.marks else "One came out, and its copy was kept out."
        match self.fates:
            case []:
                return (
                    f"Neither came out within {PATIENCE_S:g} s: check that the service runs with "
                    "this configuration, and what its /readyz reports."
                )
            case ["accepted", "accepted"]:
                return "Both came out: nothing is remembered for this address; see its settings."
            case [_]:
                return f"The other did not appear within {_AFTER_S:g} s; see on_duplicate."
            case _:
                return "The copy was not recognised as a duplicate; see the reason, and the route."


def trial(config: Config, topic: str, say: Callable[[str], None]) -> bool:
    """Try it, print the report, and return whether duplicates are kept out.

    That is so if the copy was, and if the messages that publishers send have an id, too: the one
    that is sent has whatever the route reads. Raises ExitError if it cannot be tried.
    """
    clients = KafkaClients(config)
    try:
        result, live = _try(config, clients, topic)
    except KafkaException as error:
        raise _refused(topic, error.args[0]) from error
    problem = live.problem
    told = f"{problem.what}; {problem.fix}" if problem else live.warning or live.found
    for line in (*result.lines(), told):
        say(line)
    return result.kept_out and problem is None


def _try(file: Config, clients: KafkaClients, topic: str) -> tuple[TryResult, LiveSample]:
    config = in_effect(file, clients, SystemClock()).config
    routes = resolve(config.routes, clients.cluster.names(), config.service.group_id)
    route = routes.get(topic)
    if route is None:
        inputs = ", ".join(sorted(routes)) or "none that exists"
        raise ExitError(ExitCode.USAGE, f"No route reads {topic}; inputs are: {inputs}.")
    require_fields(route)
    watched = clients.cluster.topics(
        {*route.targets(), internal(config.service.group_id, "dead-letters")}
    )
    (live,) = sampled(config, clients, RECORDS, topic)
    name = f"{TRIAL_PREFIX}{uuid.uuid4().hex}"
    with closing(clients.observer()) as consumer:
        consumer.assign(_ends(consumer, watched))
        message = TryMessage.of(route, name)
        sent = _send_twice(clients, topic, message)
        copies = tuple(_find_copies(consumer, message.key()))
    return _result(config, route, message, sent, copies), live


def require_fields(route: InputRoute) -> None:
    """Raise ExitError if a template of a route reads a field that needs a schema."""
    read = sorted(each.name for each in route.fields() if isinstance(each, SchemaField))
    if read:
        sentence = (
            f"The route of {route.topic} reads {read[0]}, and this command cannot make a message "
            "with a schema; send one twice with your publisher."
        )
        raise ExitError(ExitCode.USAGE, sentence)


def _ends(consumer: Consumer, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    partitions = [
        TopicPartition(topic, number)
        for topic, info in topics.items()
        for number in range(info.partitions)
    ]
    for partition in partitions:
        _, partition.offset = consumer.get_watermark_offsets(partition, timeout=_REQUEST_S)
    return partitions


def _send_twice(clients: KafkaClients, topic: str, message: TryMessage) -> tuple[str, ...]:
    positions: list[str] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, written: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            positions.append(_position(written))

    producer = clients.audit_producer()
    value, key = message.value(), message.key()
    headers: list[tuple[str, str | bytes | None]] = [*message.headers]
    for _ in range(2):
        producer.produce(topic, value, key, headers=headers, on_delivery=delivered)
    producer.flush(_REQUEST_S)
    if failed or len(positions) < 2:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - the binding's own name
    return tuple(positions)


def _find_copies(consumer: Consumer, key: bytes) -> Iterable[FoundCopy]:
    deadline_s, count = time.monotonic() + PATIENCE_S, 0
    while count < 2 and time.monotonic() < deadline_s:
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        if message.key() == key:
            count += 1
            deadline_s = time.monotonic() + _AFTER_S
            yield _copy(message)


def _copy(message: Message) -> FoundCopy:
    # Of several headers with one name the last is the service's.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    texts = {name: _text(value) for name, value in headers}
    original = texts.get(Letter.ORIGINAL) or texts.get(MARK)
    cause = texts.get(Letter.CAUSE) or ""
    return FoundCopy(_position(message), texts.get(Letter.REASON), cause, original, MARK in texts)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _position(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}@{message.offset()}"


def _result(
    config: Config,
    route: InputRoute,
    message: TryMessage,
    sent: tuple[str, ...],
    copies: tuple[FoundCopy, ...],
) -> TryResult:
    try:
        address = route.address.render(message, message.headers, "")
        output = route.output.render(message, message.headers, address)
    except UnrenderableError:
        return TryResult(sent, copies, drops=False)  # it is rejected; its dead letter says why
    action = config.addresses.settings(address).on_duplicate
    return TryResult(sent, copies, action == "drop", output, action == "mark")


def _refused(topic: str, error: KafkaError) -> ExitError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        sentence = (
            f"The service's user may not write {topic} or read its outputs (the service itself "
            "needs neither): allow it, or send a message twice as your publisher does."
        )
        return ExitError(ExitCode.BROKER, sentence)
    sentence = f"The broker answered {fault_of(error).cause}; try again."
    return ExitError(ExitCode.BROKER, sentence)
