"""Schemas of dead letters: a dead letter, its original, a page of them, and counts."""

import base64
from datetime import datetime
from typing import Self

from pydantic import Field

from ringfence_api.schemas import Document, time_of
from ringfence_client.headers import id_text
from ringfence_service.dedup import dead_letter
from ringfence_service.queries import dead_letters
from ringfence_service.queries.dead_letters import DeadLetterCounts as Counts

CONTENT_BYTES_MAX = 64 * 1024
"""Maximum size of a key, a value or a header in a response."""


class Content(Document):
    """Bytes of a record: as text if they are UTF-8, else as base64."""

    text: str | None = Field(description="The bytes as text; null if they are not UTF-8.")
    base64: str | None = Field(description="The bytes in base64; null if `text` contains them.")
    size_bytes: int = Field(description="Size of the whole content, in bytes.")
    truncated: bool = Field(description="If true, only the beginning is returned.")

    @classmethod
    def of(cls, content: bytes | None) -> Self | None:
        """Build the document from bytes; None for null."""
        if content is None:
            return None
        shown = content[:CONTENT_BYTES_MAX]
        is_cut = len(shown) < len(content)
        text = _text(shown, is_cut=is_cut)
        encoded = base64.b64encode(shown).decode() if text is None else None
        return cls(text=text, base64=encoded, size_bytes=len(content), truncated=is_cut)


class Header(Document):
    """A header of the original record."""

    name: str = Field(description="The name of the header.")
    value: Content | None = Field(description="The value; null if the header has none.")


class Payload(Document):
    """The content of the record: key, value and original headers."""

    key: Content | None = Field(description="The key; null if the record has none.")
    value: Content | None = Field(description="The value; null if the record has none.")
    headers: tuple[Header, ...] = Field(description="The original headers, in order.")


class LetterSource(Document):
    """The input record that was not accepted."""

    topic: str = Field(description="The input topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int = Field(description="The offset of the record.")
    time: datetime | None = Field(description="Timestamp of the record; null if it has none.")


class DeadLetter(Document):
    """A dead letter. For a record that Ringfence did not write, only its position is known."""

    topic: str = Field(description="The dead-letter topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int = Field(description="The offset of the dead letter.")
    time: datetime = Field(description="When the record was decided.")
    is_ours: bool = Field(description="If false, another program wrote the record to this topic.")
    reason: str | None = Field(
        description="Why it was not accepted, as a code; null unless `is_ours`."
    )
    cause: str | None = Field(description="The reason as a sentence.")
    source: LetterSource | None = Field(description="The input record; null if unknown.")
    address: str | None = Field(description="The address that decided; null if there was none.")
    strategy: str | None = Field(
        description="The strategy of the address; null without an address."
    )
    id: str | None = Field(description="The id as text, or as `hex:`; a long one is truncated.")
    original: str | None = Field(
        description="`topic-partition@offset` of the accepted record that it duplicates."
    )
    redrives: int = Field(
        description="Number of times that the record was redriven before this dead letter."
    )
    size_bytes: int = Field(description="Size of key and value, in bytes.")
    payload: Payload | None = Field(
        default=None,
        description="The content; only for a single dead letter, with the role `payload:read`.",
    )

    @classmethod
    def of(cls, letter: dead_letters.DeadLetterView, *, with_payload: bool = False) -> Self:
        """Build the document from a dead letter."""
        return cls(
            topic=letter.position.topic,
            partition=letter.position.partition,
            offset=letter.position.offset,
            time=time_of(max(0, letter.time_ms)),
            is_ours=letter.reason is not None,
            reason=letter.reason,
            cause=letter.cause,
            source=_source(letter.source),
            address=letter.address,
            strategy=letter.strategy,
            id=letter.identifier,
            original=letter.original,
            redrives=letter.redrives,
            size_bytes=len(letter.key or b"") + len(letter.value or b""),
            payload=_payload(letter) if with_payload else None,
        )


class StoredRecord(Document):
    """A record of an input, as it is in its topic."""

    topic: str = Field(description="The input topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int = Field(description="The offset of the record.")
    time: datetime | None = Field(description="Timestamp of the record; null if it has none.")
    size_bytes: int = Field(description="Size of key and value, in bytes.")
    address: str | None = Field(
        description="Its address by the current settings of its route; null if it has none."
    )
    id: str | None = Field(
        description="Its id by the current settings of its route, as text, `hex:` or `base64:`; "
        "null if it has none."
    )
    id_error: str | None = Field(
        description="Why it has no address or no id, or why they cannot be read now, as when the "
        "schema registry does not answer; null if it has both."
    )
    payload: Payload = Field(description="The content of the record.")

    @classmethod
    def of(cls, record: dead_letters.InputRecord) -> Self:
        """Build the document from a record."""
        return cls(
            topic=record.position.topic,
            partition=record.position.partition,
            offset=record.position.offset,
            time=None if record.time_ms < 0 else time_of(record.time_ms),
            size_bytes=len(record.key or b"") + len(record.value or b""),
            address=record.address,
            id=None if record.identifier is None else id_text(record.identifier),
            id_error=record.id_error,
            payload=_payload(record),
        )


class DeadLetters(Document):
    """A page of dead letters."""

    dead_letters: tuple[DeadLetter, ...] = Field(description="In the requested order.")
    scanned: int = Field(description="Number of records scanned for this page.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to get the next page; null on the last page."
    )
    complete: bool = Field(description="True if there are no more records to scan.")


class HourCount(Document):
    """The number of dead letters in one hour."""

    hour: datetime = Field(description="Start of the hour.")
    dead_letters: int = Field(description="Number of dead letters.")


class DeadLetterSummary(Document):
    """Counts of dead letters. If `complete` is false, continue with the page token."""

    dead_letters: int = Field(description="Number of dead letters that match.")
    foreign: int = Field(description="Records that Ringfence did not write.")
    by_reason: dict[str, int] = Field(description="Dead letters by reason.")
    by_address: dict[str, int] = Field(
        description="The addresses with the most dead letters; `_other` sums the rest, and `_none` "
        "those without an address."
    )
    by_topic: dict[str, int] = Field(description="Dead letters by dead-letter topic.")
    by_hour: tuple[HourCount, ...] = Field(description="Dead letters by the hour of the decision.")
    scanned: int = Field(description="Number of records scanned.")
    next_page_token: str | None = Field(
        description="Send it as `page_token` to continue counting; null when complete."
    )
    complete: bool = Field(description="If false, continue with the page token.")

    @classmethod
    def of(cls, counts: Counts, token: str | None) -> Self:
        """Build the document from counts and the token of the next page."""
        hours = sorted(counts.by_hour_ms.items())
        return cls(
            dead_letters=counts.matched,
            foreign=counts.foreign,
            by_reason=counts.by_reason,
            by_address=counts.by_address,
            by_topic=counts.by_topic,
            by_hour=tuple(HourCount(hour=time_of(at), dead_letters=n) for at, n in hours),
            scanned=counts.scanned,
            next_page_token=token,
            complete=token is None,
        )


def _source(position: dead_letter.SourcePosition | None) -> LetterSource | None:
    if position is None:
        return None
    time = None if position.timestamp_ms < 0 else time_of(position.timestamp_ms)
    return LetterSource(
        topic=position.topic, partition=position.partition, offset=position.offset, time=time
    )


def _payload(record: dead_letters.DeadLetterView | dead_letters.InputRecord) -> Payload:
    headers = tuple(Header(name=name, value=Content.of(value)) for name, value in record.headers)
    return Payload(key=Content.of(record.key), value=Content.of(record.value), headers=headers)


def _text(content: bytes, *, is_cut: bool) -> str | None:
    """Decode UTF-8, without a character that the truncation split; None if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return (
            content[: error.start].decode() if is_cut and error.start > len(content) - 4 else None
        )
