"""Route: the topics to read, and for each record its address and its possible target topics.

Templates may contain {topic}, the fields of `ringfence_service.dedup.field`, and for targets
{address}. Once bound to an input topic most templates are constant, and cost nothing per record.
Invariants: a topic that a route writes, and every internal topic, is never an input; a topic that
matches two routes belongs to the first.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from ringfence_client.headers import NAME_LENGTH_MAX, Headers, Reason
from ringfence_service.config.addresses import AUDIT, BRIDGE
from ringfence_service.config.expressions import may_be_read, reads
from ringfence_service.config.model import RouteSettings, ServiceSettings
from ringfence_service.config.tasks import Hop
from ringfence_service.config.templates import PLAIN
from ringfence_service.dedup.field import Field, SchemaField, UnrenderableError, pieces_of
from ringfence_service.dedup.record import Record, RejectedError, source_of
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.kafka.topics import BY_ADDRESS, by_address, changelog
from ringfence_service.schemas.documents import Unread, documents
from ringfence_state.model import PartitionId

if TYPE_CHECKING:
    from ringfence_service.config.model import Config

ADDRESS_BYTES_MAX: Final = 4096
"""Longest address: every key of its state contains it, and the header of each dead letter.

Far below the 65,535 bytes that a key can express, and the 64 KiB of an envelope.
"""

_ADDRESS: Final = "{address}"

_LEGAL_TOPIC: Final = re.compile(rf"[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}")


class Template(NamedTuple):
    """Text with fields, bound to one input topic."""

    pieces: tuple[str | Field | None, ...]
    """Literal text, fields of the record, and None for the address."""
    constant: str | None
    """The text, if it is the same for all records."""
    field: Field | None
    """The field that alone decides the text, if there is one."""
    is_fixed_by_address: bool
    """Whether all records of an address have the same text."""

    @classmethod
    def parse(cls, text: str, topic: str) -> "Template":
        """Parse a template and bind {topic}."""
        pieces: list[str | Field | None] = []
        for part in pieces_of(text):
            if isinstance(part, Field):
                pieces.append(part)
            else:
                for number, literal in enumerate(part.replace("{topic}", topic).split(_ADDRESS)):
                    pieces += ([None] if number else []) + ([literal] if literal else [])
        fields = {piece for piece in pieces if not isinstance(piece, str)}
        return cls(
            pieces=tuple(pieces),
            constant=None if fields else "".join(cast("list[str]", pieces)),
            field=next(iter(fields)) if len(fields) == 1 else None,
            is_fixed_by_address=fields <= {None},
        )

    def render(self, record: Record, headers: Headers, address: str) -> str:
        """Return the text for one record; UnrenderableError if a field has no text in it."""
        return "".join([_rendered(piece, record, headers, address) for piece in self.pieces])


def _rendered(piece: str | Field | None, record: Record, headers: Headers, address: str) -> str:
    if piece is None:
        return address
    return piece if isinstance(piece, str) else piece.text(record, headers)


class InputRoute(NamedTuple):
    """A route as it applies to one of its input topics."""

    settings: RouteSettings
    topic: str
    address: Template
    output: Template
    dead_letter: Template

    @classmethod
    def bind(cls, settings: RouteSettings, topic: str) -> "InputRoute":
        """Bind a route to an input topic; a constant address is bound into the targets."""
        address = Template.parse(settings.address, topic)
        fixed = address.constant
        targets = [
            # The name of a topic has no backslashes, and allowed_outputs says which there are.
            Template.parse(
                PLAIN + (text if fixed is None else text.replace("{address}", fixed)), topic
            )
            for text in (settings.output, settings.dead_letter)
        ]
        return cls(settings, topic, address, *targets)

    def fields(self) -> set[Field]:
        """Return every field that its templates read from a record."""
        identifier = Template.parse(self.settings.id, self.topic)
        templates = (identifier, self.address, self.output, self.dead_letter)
        pieces = (piece for each in templates for piece in each.pieces)
        return {part for piece in pieces if isinstance(piece, Field) for part in piece.parts}

    def names(self, template: Template) -> Sequence[str]:
        """Return the topics that a template of outputs or dead letters can yield."""
        constant = template.constant
        return self.settings.allowed_outputs if constant is None else (constant,)

    def takes_accepted_only(self, topic: str) -> bool:
        """Whether a target topic can get neither dead letters nor replies."""
        others = (*self.names(self.dead_letter), *self.settings.reply_topics)
        return topic not in others

    def outputs(self) -> tuple[str, ...]:
        """Return every topic that its records and dead letters may go to."""
        fixed = {self.output.constant, self.dead_letter.constant}
        return (*(name for name in fixed if name is not None), *self.settings.allowed_outputs)

    def unread(self, records: Sequence[Record]) -> Unread | None:
        """Return the first of the records with a payload whose schema is not known yet, or None.

        Only for a route that `reads_schemas`.

        It needs a schema of any template, whichever of them this hop renders. So a record of scope
        `address` waits before the repartition topic, where it holds up no other route.
        """
        fields = [each for each in self.fields() if isinstance(each, SchemaField)]
        columns = []
        if any(each.in_key for each in fields):
            columns.append([each.key() for each in records])
        if any(not each.in_key for each in fields):
            columns.append([each.value() for each in records])
        return documents().unread(columns, self.settings.name)

    @property
    def reads_schemas(self) -> bool:
        """Whether a template reads a member by a schema."""
        settings = self.settings
        templates = (settings.id, settings.address, settings.output, settings.dead_letter)
        return any(f"{SchemaField.kind}:" in each for each in templates)

    def targets(self) -> set[str]:
        """Return every target topic that does not depend on a record, and those it may name."""
        return {*self.outputs(), *self.settings.reply_topics}


def is_legal_topic(name: str) -> bool:
    """Whether Kafka accepts a topic name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def resolve(
    routes: Collection[RouteSettings], topics: Iterable[str], group_id: str
) -> dict[str, InputRoute]:
    """Return the inputs among the existing topics, each with its route."""
    named = {name for route in routes for name in route.inputs}
    candidates = {
        name: InputRoute.bind(route, name)
        for name in sorted(topics)
        if may_be_read(name, named, group_id)
        for route in [next((route for route in routes if reads(route.inputs, name)), None)]
        if route is not None
    }
    written = written_topics(candidates)
    return {name: route for name, route in candidates.items() if name not in written}


def missing_inputs(routes: Iterable[RouteSettings], topics: Collection[str]) -> list[str]:
    """Return the inputs that routes name and that do not exist, sorted."""
    named = [name for route in routes for name in route.inputs]
    return absent(named, topics)


def absent(named: Iterable[str], topics: Collection[str]) -> list[str]:
    """Return the named topics that do not exist, sorted; regular expressions are skipped."""
    return sorted({name for name in named if name not in topics and not name.startswith("^")})


def written_topics(inputs: Mapping[str, InputRoute]) -> set[str]:
    """Every topic that the routes of these inputs may write."""
    return set().union(*(route.targets() for route in inputs.values()))


class InputPartition(NamedTuple):
    """One partition of an input."""

    source: PartitionId
    route: InputRoute
    partitions: int
    """How many partitions the input has; 0 if unknown."""
    fault: str | None = None
    """Why its records cannot be decided: it belongs to no route."""
    record_bytes_max: int = 0
    """What its topic takes; 0 if unknown."""

    def address(self, record: Record, headers: Headers) -> str:
        """Return the address of a record; RejectedError if it has no valid one."""
        address = self.route.address.constant
        if address is not None:
            return address
        try:
            address = self.route.address.render(record, headers, "")
        except UnrenderableError as error:
            raise RejectedError(Reason.NO_ADDRESS, f"no address: {error}") from None
        if not address or len(address.encode()) > ADDRESS_BYTES_MAX:
            cause = f"the address is empty or longer than {ADDRESS_BYTES_MAX} bytes"
            raise RejectedError(Reason.NO_ADDRESS, cause)
        for prefix in (AUDIT, BRIDGE):  # else it would share the cache of another address
            if address.startswith(prefix):
                cause = f"the address begins with {prefix}, a prefix that Ringfence reserves"
                raise RejectedError(Reason.NO_ADDRESS, cause)
        return address

    def check(self) -> None:
        """Raise RejectedError if it belongs to no route."""
        if self.fault is not None:
            raise RejectedError(Reason.NO_OUTPUT, self.fault)


Find = Callable[[bytes], InputPartition]


def finder(
    routes: Iterable[RouteSettings],
    group_id: str,
    topics: Callable[[], Mapping[str, TopicInfo]],
    doubt: Callable[[str], None] = lambda _topic: None,
) -> Find:
    """Return a function from a name in an origin header to the input partition.

    `topics` returns the inputs that exist now. A deleted input is found as well, since records of
    it are still to be decided. `doubt` is called with a topic before it counts as without a route,
    and raises if another instance may know a newer route.
    """
    settings = tuple(routes)

    def find(input_name: bytes) -> InputPartition:
        source = source_of(input_name)
        if source is None or not is_legal_topic(source.topic):
            name = input_name.decode(errors="replace")[:300]
            return unrouted(PartitionId(name, 0), "it does not say which input it came from")
        bound = resolve(settings, [source.topic], group_id).get(source.topic)
        if bound is None:
            doubt(source.topic)
            return unrouted(source, f"its input {source.topic} belongs to no route any more")
        info = topics().get(source.topic)
        if info is None:
            return InputPartition(source, bound, 0)
        return InputPartition(
            source, bound, info.partitions, record_bytes_max=info.record_bytes_max
        )

    return find


def unrouted(source: PartitionId, fault: str) -> InputPartition:
    """Return an input partition without a route; checks reject its records with `fault`."""
    stand_in = RouteSettings(name=source.topic)
    return InputPartition(source, InputRoute.bind(stand_in, source.topic), 0, fault)


class InputTopic(NamedTuple):
    """A topic to read."""

    partitions: int
    route: InputRoute | None
    """None for by-address, which has records of many inputs."""
    changelog: str | None
    """Its changelog topic; None if its records are only forwarded to by-address."""
    topic_id: str = ""
    changelog_id: str = ""
    """Topic ids of both: a topic that is deleted and created again has another id."""
    record_bytes_max: int = 0


def input_topics_of(
    service: ServiceSettings,
    hop: Hop,
    routes: Mapping[str, InputRoute],
    topics: Mapping[str, TopicInfo],
    own_ids: Mapping[str, str],
) -> dict[str, InputTopic]:
    """Return the topics that a hop reads, given the existing inputs and internal topics' ids."""
    group_id = service.group_id
    if hop is Hop.ADDRESSES:
        name, log = by_address(group_id), changelog(group_id, BY_ADDRESS)
        count, ids = service.by_address_partitions, (own_ids.get(name, ""), own_ids.get(log, ""))
        return {name: InputTopic(count, None, log, *ids)}
    logs = {name: _log(group_id, routes[name]) for name in topics}
    return {
        name: InputTopic(
            topic.partitions,
            routes[name],
            logs[name],
            topic.topic_id,
            own_ids.get(logs[name] or "", ""),
            topic.record_bytes_max,
        )
        for name, topic in topics.items()
    }


def decides_by_address(config: "Config") -> bool:
    """Whether any route has two hops."""
    return any(route.is_repartitioned for route in config.routes)


def _log(group_id: str, route: InputRoute) -> str | None:
    """Return the changelog of an input with scope `partition`, else None."""
    return None if route.settings.is_repartitioned else changelog(group_id, route.topic)
