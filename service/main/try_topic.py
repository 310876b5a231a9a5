"""`ringfence try`: sends one message twice to an input, and looks for both in the outputs.

Both messages have the same key, value and claims, so they are duplicates whatever strategy decides.
They are found by their key, behind the ends that the topics had before.
"""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ringfence.headers import (
    DUPLICATE_ID,
    MARK,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    REPEATED,
    STREAM,
    internal,
)
from ringfence.headers import DeadLetter as Letter
from service.clock import SystemClock
from service.config.load import Config
from service.dedup.record import UnrenderableError
from service.dedup.route import InputRoute, resolve
from service.errors import ExitCode, ExitError
from service.kafka.admin import TopicInfo
from service.kafka.clients import KafkaClients
from service.kafka.errors import fault_of
from service.metadata.effective_config import in_effect

PATIENCE_S: Final = 30.0
"""How long the first may take: a service that has just started may still be joining its group."""
_AFTER_S: Final = 5.0
"""How long the second may take once the first is there."""
_QUESTION_S: Final = 30.0


class FoundCopy(NamedTuple):
    """One of the two, where it was found."""

    place: str
    reason: str | None
    """Why it was dead-lettered; None in an output."""
    cause: str
    original: str | None
    """The place of the accepted one, as a copy tells it."""
    marked: bool
    """Whether it went out as a duplicate."""

    @property
    def fate(self) -> str:
        """What was made of it, in a word."""
        if self.reason is None:
            return "duplicate" if self.marked else "accepted"
        return "duplicate" if self.reason in REPEATED else "rejected"

    def line(self) -> str:
        """For a reader."""
        of = f", a copy of {self.original}" if self.original else ""
        why = f": {self.reason}, {self.cause}" if self.fate == "rejected" else of
        return f"{self.fate:<11}{self.place}{why}"


class TryResult(NamedTuple):
    """What was sent, and what was found of it."""

    sent: tuple[str, ...]
    copies: tuple[FoundCopy, ...]
    drops: bool
    """Whether the configuration has duplicates of this address dropped."""

    @property
    def fates(self) -> list[str]:
        """Of the copies that were found."""
        return sorted(copy.fate for copy in self.copies)

    @property
    def kept_out(self) -> bool:
        """Whether exactly one came out, and the other was seen to be its copy."""
        return self.fates == (["accepted"] if self.drops else ["accepted", "duplicate"])

    def lines(self) -> list[str]:
        """For a reader."""
        dropped = (
            ["duplicate  dropped, as on_duplicate says"] if self.kept_out and self.drops else []
        )
        found = [copy.line() for copy in self.copies]
        return [f"sent       {' and '.join(self.sent)}", *found, *dropped, self._conclusion()]

    def _conclusion(self) -> str:
        if self.kept_out:
            return "One came out, its copy was kept out."
        match self.fates:
            case []:
                return (
                    f"Neither came out within {PATIENCE_S:g} s: see whether the service runs with "
                    "this configuration, and what its /readyz says."
                )
            case ["accepted", "accepted"]:
                return "Both came out: nothing is remembered for this address; see its settings."
            case [_]:
                return f"Nothing was seen of the other for {_AFTER_S:g} s; see on_duplicate."
            case _:
                return "It was not judged as a duplicate; see the reason, and the route."


def trial(config: Config, topic: str, say: Callable[[str], None]) -> bool:
    """Do it and tell; whether the copy was kept out. ExitError when it cannot be tried."""
    clients = KafkaClients(config)
    try:
        findings = _tried(config, clients, topic)
    except KafkaException as error:
        raise _unanswered(topic, error.args[0]) from error
    for line in findings.lines():
        say(line)
    return findings.kept_out


def _tried(file: Config, clients: KafkaClients, topic: str) -> TryResult:
    config = in_effect(file, clients, SystemClock()).config
    routes = resolve(config.routes, clients.cluster.names(), config.service.group_id)
    route = routes.get(topic)
    if route is None:
        inputs = ", ".join(sorted(routes)) or "none that exists"
        raise ExitError(ExitCode.USAGE, f"No route reads {topic}; inputs are: {inputs}.")
    watched = clients.cluster.topics(
        {*route.targets(), internal(config.service.group_id, "dead-letters")}
    )
    name = f"ringfence-try-{uuid.uuid4().hex}"
    with closing(clients.observer()) as consumer:
        consumer.assign(_ends(consumer, watched))
        sent = _sent_twice(clients, topic, name)
        copies = tuple(_found(consumer, name.encode()))
    return TryResult(sent, copies, _drops(config, route, name))


def _ends(consumer: Consumer, topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    places = [
        TopicPartition(topic, number)
        for topic, info in topics.items()
        for number in range(info.partitions)
    ]
    for place in places:
        _, place.offset = consumer.get_watermark_offsets(place, timeout=_QUESTION_S)
    return places


def _sent_twice(clients: KafkaClients, topic: str, name: str) -> tuple[str, ...]:
    places: list[str] = []
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)
        else:
            places.append(_place(message))

    producer = clients.audit_producer()
    value = json.dumps({"ringfence": "try", "id": name}).encode()
    for _ in range(2):
        producer.produce(topic, value, name, headers=_claims(name), on_delivery=delivered)
    producer.flush(_QUESTION_S)
    if failed or len(places) < 2:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - the binding's own name
    return tuple(places)


def _claims(name: str) -> list[tuple[str, str | bytes | None]]:
    """What any strategy reads: an id, and the first number of a publisher and of a stream."""
    return [(DUPLICATE_ID, name), (PUBLISHER, name), (NUMBER, "1"), (STREAM, "1"), (PREVIOUS, "0")]


def _found(consumer: Consumer, key: bytes) -> Iterable[FoundCopy]:
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
    # Of several headers with one name the last is ours.
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    texts = {name: _text(value) for name, value in headers}
    original = texts.get(Letter.ORIGINAL) or texts.get(MARK)
    cause = texts.get(Letter.CAUSE) or ""
    return FoundCopy(_place(message), texts.get(Letter.REASON), cause, original, MARK in texts)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _place(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}@{message.offset()}"


def _drops(config: Config, route: InputRoute, name: str) -> bool:
    headers: Sequence[tuple[str, bytes | None]] = [(header, b"") for header, _ in _claims(name)]
    try:
        address = route.address.render(name.encode(), headers, "")
    except UnrenderableError:
        return False  # it is rejected, and says so itself
    return config.addresses.settings(address).on_duplicate == "drop"


def _unanswered(topic: str, error: KafkaError) -> ExitError:
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        sentence = (
            f"Our user may not write {topic} or read what comes of it (the service itself need "
            "not): allow it, or send a message twice as your publisher does."
        )
        return ExitError(ExitCode.BROKER, sentence)
    sentence = f"The broker answered {fault_of(error).cause}; try again."
    return ExitError(ExitCode.BROKER, sentence)
