"""Live sample: whether the newest messages of an input have what its route takes for their id.

A consumer of its own reads them, outside every group and committed messages alone.
Invariants: nothing is written. Names of members and headers are reported, never their values. Time
and bytes are bounded.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ringfence_client.headers import DUPLICATE_ID, DUPLICATE_ID_ALIASES, Headers
from ringfence_service.clock import SystemClock
from ringfence_service.config.addresses import AddressBook, settings_of
from ringfence_service.config.model import Config
from ringfence_service.config.templates import named
from ringfence_service.dead_letters.reader import OffsetScan
from ringfence_service.dedup.claim import claim_of, identifier_of, missing_headers, read_membership
from ringfence_service.dedup.field import ContentField, Field, HeaderField, JsonField
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.route import InputPartition, InputRoute, resolve
from ringfence_service.errors import ConfigIssue, ExitCode, ExitError
from ringfence_service.formatting import percent, plural
from ringfence_service.kafka.clients import Clients, KafkaClients
from ringfence_service.kafka.errors import fault_of
from ringfence_service.kafka.io import memory_bytes, read_headers
from ringfence_service.kafka.model import UNREADABLE, UNREADABLE_CAUSE
from ringfence_service.metadata.effective_config import in_effect
from ringfence_service.schemas.documents import connect
from ringfence_service.schemas.errors import RegistryUnavailableError, UndecodableError
from ringfence_service.schemas.json_text import parsed, siblings, tokens_of
from ringfence_state.model import Claim, PartitionId

RECORDS: Final = 1_000
"""How many messages of an input are read unless a number is given."""
BYTES_MAX: Final = 64 * 1024 * 1024
"""How many bytes of an input are read at most: a few seconds on a usual connection."""
PATIENCE_S: Final = 15.0
"""How long the messages of an input may take."""
WARNED_BELOW: Final = 0.99
"""A smaller share of messages with an id is a warning."""
TRIAL_PREFIX: Final = "ringfence-try-"
"""The ids of messages that `ringfence try` has sent begin so: no publisher sends them."""

_REQUEST_S: Final = 30.0
"""How long the broker may take for the ends of a partition; only the command's user waits."""
_NAMES_MAX: Final = 20
"""How many names are shown: they come from messages, which may have any number."""
_CAUSES_MAX: Final = 3
"""How many causes a sentence has, the most frequent ones."""
_NAME_CHARS_MAX: Final = 80
"""How much of a name is shown: a publisher may write one of any length."""


class LiveSample(NamedTuple):
    """What the newest messages of an input have."""

    topic: str
    route: str
    records: int
    """Messages that their route would check if they had an id; those of groups are left out."""
    identified: int
    """Of these, those with what the strategy of their address reads."""
    wanted: str
    """Where the others lack it."""
    missing_id: str
    """What the route does with the others."""
    causes: Mapping[str, int]
    """Why they have no id, each with the number of messages."""
    names: tuple[str, ...]
    """What they have where the id is looked for, as JSON pointers or names of headers."""
    kind: str
    """What `names` are: members, or headers."""
    off: int = 0
    """Messages of addresses that detect nothing."""

    @property
    def found(self) -> str:
        """Return what was found, as a sentence without its end."""
        if not self.records:
            off = f"; {self.off:,} are of addresses that detect no duplicates" if self.off else ""
            return f"{self.topic} has no messages to look at{off}"
        last = f"of the last {plural(self.records, 'message')} of {self.topic}"
        text = f"{last}, {self.identified:,} have {self.wanted}"
        if self.identified == self.records:
            return text
        listed = sorted(self.causes.items(), key=lambda each: -each[1])[:_CAUSES_MAX]
        causes = ", ".join(f"{number:,} since {cause}" for cause, number in listed)
        names = f"; their {self.kind} are: {', '.join(self.names)}" if self.names else ""
        return f"{text}; without: {causes}{names}"

    @property
    def problem(self) -> ConfigIssue | None:
        """Return the problem of a route that would deduplicate nothing, else None."""
        if not self.records or self.identified:
            return None
        return ConfigIssue(f"{self.found}; all of them {self._fate}", self._fix)

    @property
    def warning(self) -> str | None:
        """Return the warning of a route of which some messages have no id, else None."""
        if not self.identified or self.identified >= WARNED_BELOW * self.records:
            return None
        share = percent(1 - self.identified / self.records)
        return f"{self.found}; {share} {self._fate}; {self._fix}"

    @property
    def _fate(self) -> str:
        match self.missing_id:
            case "dead_letter":
                return "are dead-lettered as missing-id"
            case "stamp":
                return "get an id made of their position, which recognises no resend"
        return "pass unchecked, with their duplicates"

    @property
    def _fix(self) -> str:
        return (
            f'give the route "{self.route}" an id that its messages have, under another name of '
            f"the route, or have publishers send what it reads"
        )


class Sampler:
    """Looks at messages of one input."""

    def __init__(self, route: InputRoute, book: AddressBook) -> None:
        self._route, self._book = route, book
        self._input_partition = InputPartition(PartitionId(route.topic, 0), route, 0)
        self._identifier = identifier_of(route.settings.id)
        self._records = self._identified = self._off = 0
        self._wanted = ""
        self._causes = Counter[str]()
        self._names: dict[str, None] = {}
        self._kind = "members"
        self._undecodable = ""
        """Why the first document that cannot be decoded cannot."""

    def look(self, record: Record, headers: Headers | None) -> None:
        """Count one message; RegistryUnavailableError if its schema cannot be read now."""
        try:
            if headers is UNREADABLE:
                self._lacks(UNREADABLE_CAUSE)
                return
            self._look(record, headers or ())
        except RejectedError as error:
            self._lacks(error.why.cause)

    def _look(self, record: Record, headers: Headers) -> None:
        address = self._input_partition.address(record, headers)
        settings = settings_of(self._book, address)
        if not settings.remembers:
            self._off += 1
            return
        strategy = settings.remembered_by
        claim = claim_of(self._identifier, record, headers, strategy.publisher_headers)
        required = strategy.required_headers
        self._wanted = f"the headers {', '.join(required)}" if required else self._where
        if strategy.claims(claim):
            self._records += 1
            self._identified += 1
        elif read_membership(headers) is None:  # else one id of the group is enough
            self._lacks(self._why(record, headers, claim, required))

    def _lacks(self, cause: str) -> None:
        self._records += 1
        if cause in self._causes or len(self._causes) < RECORDS:
            self._causes[cause] += 1

    @property
    def _where(self) -> str:
        return (
            f"an id at {named(self._route.settings.id)}"
            if self._identifier
            else "an id in a header"
        )

    def _why(
        self, record: Record, headers: Headers, claim: Claim, required: tuple[str, ...]
    ) -> str:
        missing = missing_headers(claim, required)
        if missing or self._identifier is None:
            self._add("headers", (name for name, _ in headers))
            return f"it has no {missing or DUPLICATE_ID}"
        field = self._identifier.missing(record, headers)
        if claim.is_unreadable:  # the causes differ by the place of the fault
            self._undecodable = self._undecodable or field.why_missing(record)
            return f"the document cannot be decoded (the first: {self._undecodable})"
        for part in field.parts:
            if isinstance(part, HeaderField):
                self._add("headers", (name for name, _ in headers))
            else:
                self._add("members", _siblings(part, record))
        return field.why_missing(record)

    def _add(self, kind: str, names: Iterator[str]) -> None:
        self._kind = kind
        for name in names:
            if len(self._names) < _NAMES_MAX:
                self._names[name[:_NAME_CHARS_MAX]] = None

    @property
    def result(self) -> LiveSample:
        """Return what was found so far."""
        return LiveSample(
            self._route.topic,
            self._route.settings.name,
            self._records,
            self._identified,
            self._wanted or self._where,
            self._route.settings.missing_id,
            dict(self._causes),
            tuple(self._names),
            self._kind,
            self._off,
        )


def _siblings(field: Field, record: Record) -> Iterator[str]:
    """Yield the pointers of what a document has where a field looks for something else."""
    if not isinstance(field, JsonField | ContentField):
        return
    document = field.document_of(record)
    if document is None:
        return
    try:
        yield from siblings(parsed(document), tokens_of(field.pointer))
    except UndecodableError:
        return


def sampled(
    config: Config,
    clients: Clients,
    records_max: int,
    topic: str | None = None,
    monotonic_s: Callable[[], float] = time.monotonic,
) -> Iterator[LiveSample]:
    """Look at the newest messages of each input, or of one; yield what they have.

    KafkaException if they cannot be read, RegistryUnavailableError if their schema cannot.
    """
    routes = resolve(config.routes, clients.cluster.names(), config.service.group_id)
    chosen = {name: route for name, route in routes.items() if topic in {None, name}}
    topics = clients.cluster.topics(chosen)
    with closing(clients.observer()) as consumer:
        for name in sorted(chosen.keys() & topics.keys()):
            spans = _newest(consumer, name, topics[name].partitions, records_max)
            sampler = Sampler(chosen[name], config.addresses)
            for message in _read(consumer, spans, records_max, monotonic_s):
                (headers,) = read_headers([message])
                if not _is_trial(headers):
                    sampler.look(message, headers)
            yield sampler.result


def _newest(
    consumer: Consumer, topic: str, partitions: int, records_max: int
) -> dict[PartitionId, tuple[int, int]]:
    """Return offset ranges at the ends of the partitions; together `records_max` or fewer.

    They are of equal length, but for partitions that have less.
    """
    ends = {
        PartitionId(topic, number): consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=_REQUEST_S
        )
        for number in range(partitions)
    }
    found, left = {}, records_max
    shortest = sorted(ends.items(), key=lambda each: each[1][1] - each[1][0])
    for done, (source, (low, high)) in enumerate(shortest):
        count = min(high - low, -(-left // (partitions - done)))
        left -= count
        if count:
            found[source] = high - count, high
    return found


def _read(
    consumer: Consumer,
    spans: Mapping[PartitionId, tuple[int, int]],
    records_max: int,
    monotonic_s: Callable[[], float],
) -> Iterator[Message]:
    deadline_s, size_bytes = monotonic_s() + PATIENCE_S, 0
    starts = {source: start for source, (start, _) in spans.items()}
    ends = {source: end for source, (_, end) in spans.items()}

    def is_late() -> bool:
        return monotonic_s() >= deadline_s or size_bytes >= BYTES_MAX

    for message in OffsetScan(consumer, starts, ends, records_max, is_late):
        size_bytes += memory_bytes(message)
        yield message
        if size_bytes >= BYTES_MAX:
            return


def _is_trial(headers: Headers | None) -> bool:
    prefix = TRIAL_PREFIX.encode()
    return any(
        name in DUPLICATE_ID_ALIASES and value is not None and value.startswith(prefix)
        for name, value in headers or ()
    )


def sample(file: Config, records_max: int, topic: str | None = None) -> list[LiveSample]:
    """Look at the newest messages of the inputs that are in effect; ExitError if it cannot."""
    clients = KafkaClients(file)
    try:
        connect(file.schema_registry)
        config = in_effect(file, clients, SystemClock()).config
        return list(sampled(config, clients, records_max, topic))
    except KafkaException as error:
        cause = fault_of(error.args[0]).cause
        sentence = (
            f"The newest messages cannot be read: {cause}; the user needs READ on the inputs."
        )
        raise ExitError(ExitCode.BROKER, sentence) from error
    except RegistryUnavailableError as error:
        raise ExitError(ExitCode.BROKER, f"No schema from {error}; try again.") from error
