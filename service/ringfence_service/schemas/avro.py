"""Avro: reads binary data by the schema with which it was written.

One walk over a payload finds the places of all members that pointers have named so far, for this
schema and in this process. It passes over everything else and makes nothing of it. Only the
requested member becomes a value, so other members may contain anything.
What always holds: whether a payload can be walked does not depend on the pointers, so every record
has the same fate in every process. A walk takes steps in proportion to the bytes of the payload,
and values that need no bytes take none. It uses a stack of its own, whose depth is limited.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any, Final

from ringfence_service.schemas.avro_types import (
    ARRAY,
    ENTRY,
    LENGTH,
    MAP,
    NUMBER,
    PLACE,
    RECORD,
    SHORT,
    SIZED,
    UNION,
    ArrayType,
    LeafType,
    MapType,
    RecordType,
    Single,
    Step,
    Type,
    UnionType,
    bytes_at,
    joined,
    long_at,
    sized,
    types_of,
)
from ringfence_service.schemas.errors import SchemaUnusableError, UndecodableError
from ringfence_service.schemas.json_text import index_of, member_of
from ringfence_service.schemas.limits import CONTAINERS_MIN, CONTAINERS_PER_BYTE, DEPTH_MAX
from ringfence_service.schemas.number_text import bytes_text, double_text, single_text

_LONG: Final = 0x80
"""The bit of a byte of a number that has more bytes."""
_LONG_OR_NEGATIVE: Final = 0x81
_ROOT: Final = ""
"""The name of the whole value."""

_Wanted = dict[str, "_Wanted"]
"""Tokens of pointers by those before them."""


class _Chosen(dict[object, object]):
    """The items of an array that pointers name, by their indexes."""


class _Walked:
    """A payload with the places that a plan has found in it."""

    __slots__ = ("body", "found", "plan")

    def __init__(self, body: bytes, plan: Step, found: object) -> None:
        self.body, self.plan, self.found = body, plan, found


class AvroDecoder:
    """Decodes the data of one schema."""

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        """`references` are the texts of the schemas that this one names, each before its users.

        SchemaUnusableError if a text is not an Avro schema.
        """
        try:
            self._type, self._is_bytes = types_of([*references, text])
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            cause = f"it is not an Avro schema ({type(error).__name__}: {error})"
            raise SchemaUnusableError(cause) from None
        self._pointers: set[tuple[str, ...]] = set()
        self._wanted: _Wanted = {}
        self._plan = self._type.skip

    def document(self, body: bytes) -> object:
        """Return a payload with its places; UndecodableError if it is not data of the schema."""
        return _Walked(body, self._plan, self._walked(body))

    def member(self, document: object, tokens: Sequence[str]) -> object:
        """Return what the tokens of a JSON pointer name, as `Decoder.member` describes it.

        A pointer that is new makes a new plan. UndecodableError if the bytes of the member are no
        value of its type.
        """
        assert isinstance(document, _Walked)
        pointer = tuple(tokens)
        if pointer not in self._pointers:
            self._want(pointer)
        if document.plan is not self._plan:
            document.plan, document.found = self._plan, self._walked(document.body)
        found = member_of(document.found, pointer)
        if isinstance(found, tuple):
            read, at = found
            return _text(read(document.body, at))
        return [] if isinstance(found, _Chosen) else found

    def _want(self, pointer: tuple[str, ...]) -> None:
        wanted = self._wanted
        for token in pointer:
            wanted = wanted.setdefault(token, {})
        self._pointers.add(pointer)
        self._plan = _Planner().step(self._type, _ROOT, self._wanted)

    def _walked(self, body: bytes) -> object:
        """Return what of a body is wanted: a place, or a dict of them."""
        if self._is_bytes:
            return _whole, 0
        try:
            return _walk(self._plan, body)
        except IndexError:
            raise UndecodableError(SHORT) from None


def _whole(data: bytes, _at: int) -> object:
    return data


def _text(found: object) -> object:
    """Return bytes and finite numbers as text, and any other value as it is."""
    match found:
        case bool():
            return found
        case int():
            return str(found)
        case float() if math.isfinite(found):
            return single_text(found) if isinstance(found, Single) else double_text(found)
        case float():
            return float(found)
        case bytes():
            return bytes_text(found)
        case _:
            return found


class _Planner:
    """Makes the steps that remember the places of what is wanted."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], Step] = {}
        """By type and wanted tokens. The branches of a union may lead to the same types again."""

    def step(self, kind: Type, name: object, wanted: _Wanted | None) -> Step:
        """Return the step over a value, which remembers it by its name if it is wanted."""
        if wanted is None:
            return kind.skip
        key = id(kind), id(wanted)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._step(kind, name, wanted)
        return found

    def _step(self, kind: Type, name: object, wanted: _Wanted) -> Step:
        match kind:
            case LeafType():
                return PLACE, (name, kind.read, kind.skip)
            case UnionType():
                return UNION, tuple(self.step(each, name, wanted) for each in kind.branches)
            case RecordType():
                steps = [self.step(each, to, wanted.get(to)) for to, each in kind.fields]
                return RECORD, (name, joined(steps), int(kind.skip[0] == RECORD))
            case ArrayType():
                chosen = [
                    (index, self.step(kind.items, token, wanted[token]))
                    for token in wanted
                    if (index := index_of(token)) is not None
                ]
                return ARRAY, (name, kind.items.skip, sorted(chosen, key=lambda each: each[0]))
            case MapType():
                keys = {
                    token.encode(errors="surrogatepass"): self.step(kind.values, token, within)
                    for token, within in wanted.items()
                }
                return MAP, (name, (ENTRY, (keys, kind.values.skip)))


def _walk(plan: Step, data: bytes) -> object:  # noqa: C901, PLR0912 - one loop without calls: it runs for each value
    """Return what a plan remembers of a value: a place, a dict of them, or None.

    IndexError if the data ends too early; UndecodableError for anything else that is wrong.
    """
    end, at = len(data), 0
    levels = _Levels(data)
    steps: Iterator[Step] | None = iter((plan,))
    while steps is not None:
        for step in steps:
            code, arg = step
            while code >= UNION:
                if code == UNION:
                    number = data[at]
                    if number & _LONG_OR_NEGATIVE:
                        number, at = long_at(data, at)
                    else:
                        number >>= 1  # of one byte, as nearly all are
                        at += 1
                    if not 0 <= number < len(arg):
                        raise UndecodableError("a union in it names a type that it does not have")
                    code, arg = arg[number]
                elif code == PLACE:
                    name, read, (code, arg) = arg
                    levels.into[name] = read, at
                else:
                    key, at = bytes_at(data, at)
                    keys, other = arg
                    code, arg = keys.get(key, other)
            if code == LENGTH:
                length = data[at]
                if length & _LONG_OR_NEGATIVE:
                    _, at = bytes_at(data, at)
                else:
                    at += 1 + (length >> 1)
            elif code == SIZED:
                at += arg
            elif code == NUMBER:
                if data[at] < _LONG:
                    at += 1
                else:
                    _, at = long_at(data, at)
            else:
                steps = levels.enter(steps, code, arg)
                break
        else:
            steps, at = levels.resume(at)
    if at > end:
        raise UndecodableError(SHORT)
    if at < end:
        raise UndecodableError("more bytes follow than its schema describes")
    return levels.into.get(_ROOT)


class _Levels:
    """The records, arrays and maps that a walk is in, and what it remembers of them."""

    __slots__ = ("_data", "_depth", "_index", "_items", "_left", "_outer", "into")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.into: dict[object, object] = {}
        """What is remembered of the innermost one that is wanted."""
        self._items: tuple[Step, Sequence[tuple[int, Step]]] | None = None
        """Of an array or map: the step of an item, and index and step of those that differ."""
        self._index = self._depth = 0
        self._left = self._most
        self._outer: list[tuple[Any, ...]] = []

    @property
    def _most(self) -> int:
        return CONTAINERS_MIN + CONTAINERS_PER_BYTE * len(self._data)

    def enter(self, steps: Iterator[Step], code: int, arg: tuple[Any, ...]) -> Iterator[Step]:
        """Return the steps within a container; those around it are continued by `resume`."""
        self._outer.append((steps, self.into, self._items, self._index, self._depth))
        name, own = arg[0], arg[1]
        if name is not None:
            outer, self.into = self.into, _Chosen() if code == ARRAY else {}
            outer[name] = self.into
        if code == RECORD:
            counted: int = arg[2]
            self._items = None
        else:
            counted = 1
            self._items, self._index, own = (own, arg[2] if code == ARRAY else ()), 0, ()
        self._depth += counted
        self._left -= counted
        if self._depth > DEPTH_MAX:
            raise UndecodableError(f"it is nested deeper than {DEPTH_MAX} levels")
        if self._left < 0:
            size = len(self._data)
            raise UndecodableError(
                f"it has more than {self._most} records, arrays and maps in {size} bytes"
            )
        return iter(own)

    def resume(self, at: int) -> tuple[Iterator[Step] | None, int]:
        """Return the steps after the last one: another block of items, or what is around.

        None if it was the last step of all; and the position after the count of a block.
        """
        if self._items is not None:
            count, at = _count(self._data, at)
            if count:
                item, chosen = self._items
                if item[0] != SIZED and count > len(self._data) - at:
                    raise UndecodableError(SHORT)  # each item has a byte at least
                first, self._index = self._index, self._index + count
                return iter(_block(item, chosen, first, count)), at
        if not self._outer:
            return None, at
        steps, self.into, self._items, self._index, self._depth = self._outer.pop()
        return steps, at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return how many items a block has, 0 for the last one, and the position of the first."""
    count, at = long_at(data, at)
    if count < 0:
        _, at = long_at(data, at)  # its size in bytes
    return abs(count), at


def _block(
    item: Step, chosen: Sequence[tuple[int, Step]], first: int, count: int
) -> Iterable[Step]:
    """Return the steps of a block of items, which begins at an index."""
    if not chosen:
        return _alike(item, count)
    parts: list[Iterable[Step]] = []
    after = first + count
    for index, step in chosen:
        if first <= index < after:
            parts += (_alike(item, index - first), (step,))
            first = index + 1
    return chain(*parts, _alike(item, after - first))


def _alike(item: Step, count: int) -> Iterable[Step]:
    """Return the steps of as many items, in one where their size is known."""
    code, size = item
    return (sized(size * count),) if code == SIZED else repeat(item, count)
