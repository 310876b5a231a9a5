"""Schemas of dead letters: one, a page of them, and counts."""

import base64
from datetime import datetime
from typing import Self

from pydantic import Field

from api.schemas import Document, time_of
from service.dedup import dead_letter as letter_values

CONTENT_BYTES_MAX = 64 * 1024
"""Of a key, a value or a header that is shown."""


class Content(Document):
    """Bytes of a record: text where they are UTF-8, else base64."""

    text: str | None = Field(description="The bytes as text; null where they are not UTF-8.")
    base64: str | None = Field(description="The bytes in base64; null where `text` has them.")
    size_bytes: int = Field(description="Of all, in bytes.")
    truncated: bool = Field(description="Only the beginning is shown.")

    @classmethod
    def of(cls, content: bytes | None) -> Self | None:
        """Describe them; None for null."""
        if content is None:
            return None
        shown = content[:CONTENT_BYTES_MAX]
        is_cut = len(shown) < len(content)
        text = _text(shown, is_cut=is_cut)
        told = base64.b64encode(shown).decode() if text is None else None
        return cls(text=text, base64=told, size_bytes=len(content), truncated=is_cut)


class Header(Document):
    """A header of the original record."""

    name: str = Field(description="The name of the header.")
    value: Content | None = Field(description="Its value; null where it has none.")


class Payload(Document):
    """What the record itself holds: key, value and original headers."""

    key: Content | None = Field(description="The key; null where it has none.")
    value: Content | None = Field(description="The value; null where it has none.")
    headers: tuple[Header, ...] = Field(description="The original headers, in their order.")


class LetterSource(Document):
    """The input record that was not accepted."""

    topic: str = Field(description="The input topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int = Field(description="The offset of the record.")
    time: datetime | None = Field(description="Of the record; null where it has none.")


class DeadLetter(Document):
    """A dead letter. Of a record that no Ringfence has written, only its place is known."""

    topic: str = Field(description="The dead-letter topic.")
    partition: int = Field(description="The number of the partition.")
    offset: int = Field(description="The offset of the dead letter.")
    time: datetime = Field(description="Of the decision.")
    is_ours: bool = Field(description="False: another program wrote it here.")
    reason: str | None = Field(
        description="Why it was not accepted, in one word; null where it is not ours."
    )
    cause: str | None = Field(description="The reason as a sentence.")
    source: LetterSource | None = Field(description="The input record; null where it is not told.")
    address: str | None = Field(description="The address that decided; null without one.")
    strategy: str | None = Field(
        description="How the address recognises duplicates; null without an address."
    )
    id: str | None = Field(description="Text, or `hex:`; a long one is cut.")
    original: str | None = Field(
        description="`topic-partition@offset` of the accepted record that it repeats."
    )
    redrives: int = Field(description="How often it was redriven before it came here.")
    size_bytes: int = Field(description="Of key and value.")
    payload: Payload | None = Field(
        default=None, description="With role `payload:read`, where one dead letter is asked for."
    )

    @classmethod
    def of(cls, letter: letter_values.DeadLetterView, *, with_payload: bool = False) -> Self:
        """Describe it."""
        return cls(
            topic=letter.place.topic,
            partition=letter.place.partition,
            offset=letter.place.offset,
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


class DeadLetters(Document):
    """A page of dead letters."""

    dead_letters: tuple[DeadLetter, ...] = Field(description="The newest first.")
    scanned: int = Field(description="How many records were looked at for this page.")
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="True when nothing is left to look at.")


class HourCount(Document):
    """Dead letters of one hour."""

    hour: datetime = Field(description="The beginning of the hour.")
    dead_letters: int = Field(description="How many there were.")


class DeadLetterSummary(Document):
    """Dead letters counted. With `complete` false it is a part: go on with the page token."""

    dead_letters: int = Field(description="How many there are.")
    foreign: int = Field(description="Records that no Ringfence has written.")
    by_reason: dict[str, int] = Field(description="Dead letters by reason.")
    by_address: dict[str, int] = Field(
        description="Those with most; the others under `_other`, those without under `_none`."
    )
    by_topic: dict[str, int] = Field(description="Dead letters by dead-letter topic.")
    by_hour: tuple[HourCount, ...] = Field(description="Dead letters by the hour of the decision.")
    scanned: int = Field(description="How many records were looked at.")
    next_page_token: str | None = Field(
        description="Give it as `page_token` for the next page; null at the end."
    )
    complete: bool = Field(description="False: the page token leads on.")

    @classmethod
    def of(cls, counts: letter_values.DeadLetterCounts, token: str | None) -> Self:
        """Describe what was counted."""
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


def _source(told: letter_values.SourcePosition | None) -> LetterSource | None:
    if told is None:
        return None
    time = None if told.timestamp_ms < 0 else time_of(told.timestamp_ms)
    return LetterSource(topic=told.topic, partition=told.partition, offset=told.offset, time=time)


def _payload(letter: letter_values.DeadLetterView) -> Payload:
    headers = tuple(Header(name=name, value=Content.of(value)) for name, value in letter.headers)
    return Payload(key=Content.of(letter.key), value=Content.of(letter.value), headers=headers)


def _text(content: bytes, *, is_cut: bool) -> str | None:
    """As text, if it is; a character that the cut went through is left out."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        return (
            content[: error.start].decode() if is_cut and error.start > len(content) - 4 else None
        )
