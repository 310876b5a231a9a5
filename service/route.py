"""Route: which topics are read, and for each record its address and the topics it may go to.

Templates know {topic} {key} {header:NAME}, and {address} for targets. Bound to one input topic,
most of them are constant, and a constant costs nothing per record.
Invariants: a topic that a route writes, and every internal one, is never an input; a topic that
fits two routes belongs to the first.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from service.config import RouteSettings
from service.route_checks import fits
from service.sections import EXPRESSION_MARKER

Headers = Sequence[tuple[str, bytes | None]]

ADDRESS_BYTES_MAX: Final = 4096
_FIELD: Final = re.compile(r"\{(topic|key|address|header:[^{}]+)\}")
_LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class UnrenderableError(ValueError):
    """A template that this record does not fill: the sentence says which part is missing."""


class Field(NamedTuple):
    """One field of a template: the key, or a header by its name, as it came."""

    header: str | None

    @property
    def name(self) -> str:
        """As it is written."""
        return "{key}" if self.header is None else f"{{header:{self.header}}}"

    def text(self, key: bytes | None, headers: Headers) -> str:
        """Its text in one record; UnrenderableError when there is none."""
        value = self.of(key, headers)
        if value is None:
            raise UnrenderableError(f"the record has nothing for {self.name}")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise UnrenderableError(f"{self.name} is not UTF-8 text in this record") from None

    def of(self, key: bytes | None, headers: Headers | None) -> bytes | None:
        """The first value that is not null."""
        if self.header is None:
            return key
        for name, value in headers or ():
            if name == self.header and value is not None:
                return value
        return None


class Template(NamedTuple):
    """Text with fields."""

    pieces: tuple[str | Field | None, ...]
    """Text that stands for itself, fields of the record, and None for the address."""
    constant: str | None
    """The text, when no record changes it."""
    field: Field | None
    """The field that alone decides the text, if it is one."""
    is_fixed_by_address: bool
    """Whether records of one address all have the same text."""

    @classmethod
    def parse(cls, text: str, topic: str) -> "Template":
        """Read a template and bind {topic}."""
        bound = text.replace("{topic}", topic)
        parts = _FIELD.split(bound)
        pieces = [_field(part) if place % 2 else part for place, part in enumerate(parts)]
        fields = set(parts[1::2])
        only = next(iter(fields)) if len(fields) == 1 and fields != {"address"} else None
        return cls(
            pieces=tuple(piece for piece in pieces if piece != ""),
            constant=None if fields else bound,
            field=None if only is None else _field(only),
            is_fixed_by_address=fields <= {"address"},
        )

    def render(self, key: bytes | None, headers: Headers, address: str) -> str:
        """The text for one record; UnrenderableError when a field has no text in it."""
        return "".join([_rendered(piece, key, headers, address) for piece in self.pieces])


def _rendered(piece: str | Field | None, key: bytes | None, headers: Headers, address: str) -> str:
    if piece is None:
        return address
    return piece if isinstance(piece, str) else piece.text(key, headers)


def _field(name: str) -> Field | None:
    if name == "address":
        return None
    return Field(None if name == "key" else name.removeprefix("header:"))


class InputRoute(NamedTuple):
    """A route as it applies to one of its input topics."""

    settings: RouteSettings
    topic: str
    address: Template
    output: Template
    dead_letter: Template

    @classmethod
    def bind(cls, settings: RouteSettings, topic: str) -> "InputRoute":
        """Bind a route to an input topic; what the address is bound to reaches the targets."""
        address = Template.parse(settings.address, topic)
        fixed = address.constant
        targets = [
            Template.parse(text if fixed is None else text.replace("{address}", fixed), topic)
            for text in (settings.output, settings.dead_letter)
        ]
        return cls(settings, topic, address, *targets)

    def targets(self) -> set[str]:
        """Every topic that it names without looking at a record."""
        fixed = {self.output.constant, self.dead_letter.constant} - {None}
        return {name for name in fixed if name is not None} | set(self.settings.allowed_outputs)


def is_legal_topic(name: str) -> bool:
    """Whether Kafka takes it as a topic's name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def resolve(
    routes: Iterable[RouteSettings], topics: Iterable[str], group_id: str
) -> dict[str, InputRoute]:
    """The inputs among the topics that exist, each with its route."""
    routes = tuple(routes)
    candidates = {
        name: InputRoute.bind(route, name)
        for name in sorted(topics)
        if not name.startswith((f"{group_id}.", "__"))
        for route in [next((route for route in routes if reads(route.inputs, name)), None)]
        if route is not None
    }
    written = written_topics(candidates)
    return {name: route for name, route in candidates.items() if name not in written}


def missing_inputs(routes: Iterable[RouteSettings], topics: Collection[str]) -> list[str]:
    """Topics that routes name as their inputs and that do not exist."""
    named = [name for route in routes for name in route.inputs]
    return absent(named, topics)


def absent(named: Iterable[str], topics: Collection[str]) -> list[str]:
    """Those of the topics to read that are named and do not exist."""
    return sorted({name for name in named if name not in topics and not name.startswith("^")})


def written_topics(inputs: Mapping[str, InputRoute]) -> set[str]:
    """Every topic that the routes of these inputs may write."""
    return set().union(*(route.targets() for route in inputs.values()))


def reads(topics: Iterable[str], topic: str) -> bool:
    """Whether a topic is one of those to read: by its name, or by a regular expression."""
    return any(
        fits(name, topic) if name.startswith(EXPRESSION_MARKER) else name == topic
        for name in topics
    )
