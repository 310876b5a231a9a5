"""Documents: decodes payloads by the schemas that they name, and keeps the schemas.

Schemas are looked up beside the loop (`lookups.py`). A payload whose schema is not known yet raises
RegistryUnavailableError, and its partition waits. The schema of an id never changes, so a kept one
stays valid. What is concluded about an id without a schema holds at least until the next
transaction begins, so all checks of a record agree. What a schema or a payload may ask for is
limited (`limits.py`). Whatever else a decoder raises concerns that schema or payload alone.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ringfence_service.config.model import SchemaRegistrySettings
from ringfence_service.schemas.decoders import NOT_OF_THE_DATA, Decoder
from ringfence_service.schemas.errors import RegistryUnavailableError, UndecodableError
from ringfence_service.schemas.lookups import Lookups, not_yet
from ringfence_service.schemas.registry import ConfluentRegistry, url_for_people

SCHEMAS_MAX: Final = 1_000
"""How many schemas are kept between transactions. The oldest makes room, and is read again."""
SCHEMAS_CHARS_MAX: Final = 33_554_432
"""Characters of all schemas that are kept between transactions. A decoder takes some ten bytes of
memory for each.
"""
LACKING_MAX: Final = 10_000
"""How many ids without a schema are kept between transactions."""
UNKNOWN_S: Final = 10.0
"""How long an id that the registry did not know counts as unknown: one may register it."""
REFUSED_S: Final = 300.0
"""How long an id counts as refused: somebody may grant the right."""
AHEAD_MAX: Final = 20
"""How many ids of one partition are asked for at a time, those of records to come included."""
AHEAD_S: Final = 1.0
"""How long a partition waits for the ids of records to come, once it has that of the next one."""
WAIT_S: Final = 5.0
"""How long a program without a loop waits for an answer."""

_HEADER_BYTES: Final = 5
"""A zero byte and four bytes of the schema id: the wire format of Confluent's serializers."""
_ID_MAX: Final = 2**31 - 1
"""Registries number their schemas with positive integers of 32 bits."""


class DecodedPayload(NamedTuple):
    """A decoded payload."""

    number: int
    """The id of its schema."""
    decoder: Decoder
    content: object

    def member(self, tokens: Sequence[str]) -> object:
        """Return what the tokens of a pointer name, as `Decoder.member` does."""
        try:
            return self.decoder.member(self.content, tokens)
        except NOT_OF_THE_DATA:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this payload
            raise _undecodable(self.number, error) from None


class Unread(NamedTuple):
    """Payloads that cannot be decoded before the registry has answered."""

    row: int
    """That of the first one."""
    sentence: str
    awaits: Callable[[], str | None]
    """As in `AwaitedError`."""


class _Lacking(NamedTuple):
    """Why there is no schema for an id, and until when that holds."""

    cause: str
    until_s: float


class Documents:
    """Decodes payloads, and keeps the decoders of schemas and the last payload."""

    def __init__(
        self,
        lookups: Lookups,
        monotonic_s: Callable[[], float] = time.monotonic,
        *,
        waits: bool = False,
    ) -> None:
        """`waits`: a payload waits for its schema for `WAIT_S`; for programs without a loop."""
        self._lookups, self._monotonic_s, self._waits = lookups, monotonic_s, waits
        self._lock = threading.RLock()
        """Guards what is kept: without a loop there may be several threads."""
        self._decoders: dict[int, Decoder | str] = {}
        """By schema id: the decoder, or why no payload of that schema can be read."""
        self._chars: dict[int, int] = {}
        """By the same ids: the characters of what the decoder was made from."""
        self._lacking: dict[int, _Lacking] = {}
        self._now_s = monotonic_s()
        """When the transaction began."""
        self._last: tuple[bytes, DecodedPayload] | None = None

    def begin(self, now_s: float) -> None:
        """Begin a transaction: forget what is old, and take the answers that have come."""
        with self._lock:
            self._now_s = now_s
            over = [each for each, lacking in self._lacking.items() if lacking.until_s < now_s]
            surplus = list(self._lacking)[: max(0, len(self._lacking) - LACKING_MAX)]
            for number in {*over, *surplus}:
                del self._lacking[number]
            chars = sum(self._chars.values())
            while len(self._decoders) > SCHEMAS_MAX or chars > SCHEMAS_CHARS_MAX:
                oldest = next(iter(self._decoders))
                chars -= self._chars.pop(oldest)
                del self._decoders[oldest]
            self._take()

    def close(self) -> None:
        """Close the registry."""
        self._lookups.close()

    def document(self, payload: bytes) -> DecodedPayload:
        """Return a payload as a document.

        UndecodableError if the payload is at fault; RegistryUnavailableError as long as the
        registry may still have its schema.
        """
        last = self._last
        if last is not None and last[0] is payload:
            return last[1]
        number = schema_id(payload)
        decoder = self._decoders.get(number)
        if decoder is None:
            decoder = self._without_decoder(number)
        if isinstance(decoder, str):
            raise UndecodableError(decoder)
        try:
            content = decoder.document(payload[_HEADER_BYTES:])
        except NOT_OF_THE_DATA:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this payload
            raise _undecodable(number, error) from None
        found = DecodedPayload(number, decoder, content)
        self._last = (payload, found)
        return found

    def unread(self, columns: Iterable[Iterable[bytes | None]], route: str) -> Unread | None:
        """Return the first row with a payload whose schema is not known yet, and ask for it.

        `columns` are the keys, the values or both of the records to come; the schemas of further
        ones are asked for as well. None if all are known.
        """
        with self._lock:
            self._take()
            wanted: dict[int, int] = {}
            for payloads in columns:
                self._look_ahead(payloads, wanted)
        if not wanted:
            return None
        first = min(wanted, key=wanted.__getitem__)
        numbers = sorted(wanted, key=wanted.__getitem__)
        accepted = [number for number in numbers if self._lookups.want(number, route)]
        sentence, until_s = self._sentence(first), self._monotonic_s() + AHEAD_S
        if first in accepted:
            return Unread(wanted[first], sentence, partial(self._awaits, first, accepted, until_s))
        # The route wants too many at once already.
        pause = partial(self._rests, sentence, until_s)
        return Unread(wanted[first], sentence, pause)

    def _rests(self, sentence: str, until_s: float) -> str | None:
        return sentence if self._monotonic_s() < until_s else None

    def _look_ahead(self, payloads: Iterable[bytes | None], wanted: dict[int, int]) -> None:
        """Add the ids that are not known, each with its first row."""
        before = None
        for row, payload in enumerate(payloads):
            if payload is None or payload[:_HEADER_BYTES] == before:
                continue
            before = payload[:_HEADER_BYTES]
            if len(before) < _HEADER_BYTES or before[0] != 0:
                continue
            number = int.from_bytes(before[1:])
            if number not in self._decoders and self._why_lacking(number) is None:
                wanted[number] = min(row, wanted.get(number, row))
                if len(wanted) >= AHEAD_MAX:
                    return

    def _awaits(self, first: int, numbers: Sequence[int], until_s: float) -> str | None:
        """Return what is awaited before the row of the first id can be decided, or None."""
        sentence = self._lookups.awaited(first)
        if sentence is not None or self._monotonic_s() >= until_s:
            return sentence
        return next(filter(None, map(self._lookups.awaited, numbers)), None)

    def _sentence(self, number: int) -> str:
        return self._lookups.awaited(number) or not_yet(self._lookups.url, number)

    def _why_lacking(self, number: int) -> str | None:
        lacking = self._lacking.get(number)
        if lacking is not None:
            return lacking.cause
        return None if 0 < number <= _ID_MAX else _unknown(number)

    def _without_decoder(self, number: int) -> Decoder | str:
        with self._lock:
            self._take()
            found = self._decoders.get(number) or self._why_lacking(number)
            if found is not None:
                return found
            self._lookups.want(number, "")
        if self._waits:
            self._lookups.wait(number, WAIT_S)
            with self._lock:
                self._take()
                found = self._decoders.get(number) or self._why_lacking(number)
            if found is not None:
                return found
        cause = self._sentence(number).partition(", which ")[2]
        awaits = partial(self._lookups.awaited, number)
        raise RegistryUnavailableError(self._lookups.url, cause, awaits)

    def _take(self) -> None:
        """Keep the answers that have come. No record was decided by an id that had none."""
        for number, answer in self._lookups.take().items():
            self._lacking.pop(number, None)
            if answer.result in {"found", "unusable"}:
                self._chars[number] = answer.chars
            match answer.result:
                case "found":
                    assert answer.decoder is not None  # it was found
                    self._decoders[number] = answer.decoder
                case "unusable":
                    self._decoders[number] = (
                        f"has schema {number}, which cannot be used: {answer.cause}"
                    )
                case "unknown":
                    self._lacking[number] = _Lacking(_unknown(number), self._now_s + UNKNOWN_S)
                case "refused":
                    cause = f"has schema {number}, which the registry refuses: it {answer.cause}"
                    self._lacking[number] = _Lacking(cause, self._now_s + REFUSED_S)


def _undecodable(number: int, error: Exception) -> UndecodableError:
    """Return why a payload has no members, from what its decoder raised."""
    kind = type(error).__name__
    cause = error if isinstance(error, UndecodableError) else f"its decoder failed ({kind})"
    return UndecodableError(f"cannot be read by its schema {number}: {cause}")


def _unknown(number: int) -> str:
    return f"has schema {number}, which the registry does not know"


def schema_id(payload: bytes) -> int:
    """Return the schema id that a payload begins with; UndecodableError if there is none."""
    if len(payload) < _HEADER_BYTES or payload[0] != 0:
        raise UndecodableError("does not begin with a zero byte and the id of a schema")
    return int.from_bytes(payload[1:_HEADER_BYTES])


_of_process: list[Documents] = []


def connect(
    settings: SchemaRegistrySettings,
    on_lookup: Callable[[str], None] = lambda _result: None,
    *,
    waits: bool = True,
) -> None:
    """Have this process read schemas from a registry, if one is configured.

    `on_lookup` is that of `Lookups`, `waits` that of `Documents`.
    """
    if settings.url:
        registry = partial(ConfluentRegistry, settings)
        lookups = Lookups(url_for_people(settings.url), registry, on_lookup)
        use(Documents(lookups, waits=waits))


def use(documents: Documents | None) -> None:
    """Make all fields of this process use these documents; None if there is no registry."""
    for each in _of_process:
        each.close()
    _of_process[:] = [] if documents is None else [documents]


def documents() -> Documents:
    """Return the documents of this process."""
    assert _of_process, "a field that needs a registry was read without one"
    return _of_process[0]


def begin_transaction(now_s: float) -> None:
    """Tell the documents of this process, if it has any, that a transaction begins."""
    for each in _of_process:
        each.begin(now_s)
