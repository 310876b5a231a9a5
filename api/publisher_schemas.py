"""Schemas of publishers: where they stand, and their sessions. See `schemas.py`."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field

from api.paging import token_of
from api.schemas import Document, Given, time_of
from ringfence.headers import NUMBER_MAX, bookmark
from service.queries.publishers import PublisherAnswer, PublisherPlace, PublishersAnswer
from service.sessions import Session


class Opening(Given):
    """Who opens a session."""

    user: str = Field(default="", max_length=256, description="The same user may take over.")


class Number(Given):
    """Where a publisher is to stand."""

    address: str = Field(min_length=1, description="The address that it writes to.")
    sequence: int = Field(
        ge=1, le=NUMBER_MAX, description="The highest number that counts as accepted."
    )
    stream: int | None = Field(default=None, ge=0, le=NUMBER_MAX, description="With `ordered`.")
    topic: str | None = Field(default=None, description="The input that it writes.")
    partition: int | None = Field(default=None, ge=0, description="The partition that it writes.")
    missing: tuple[Annotated[int, Field(ge=1, le=NUMBER_MAX)], ...] = Field(
        default=(),
        max_length=1_000_000,
        description="With `audit`: numbers before it that were never accepted; else it covers all.",
    )


class Standing(Document):
    """How far a publisher has come on one address."""

    address: str = Field(description="The address.")
    topic: str = Field(description="The topic that is decided.")
    partition: int = Field(description="The number of the partition.")
    sequence: int = Field(description="The highest number that was accepted.")
    stream: int | None = Field(description="With `ordered`: the number in its stream; else null.")
    bookmark: str = Field(description="As the header `_BOOKMARK` has it.")

    @classmethod
    def of(cls, publisher: str, place: PublisherPlace) -> Self:
        """Describe it."""
        return cls(
            address=place.address,
            topic=place.topic,
            partition=place.partition,
            sequence=place.number,
            stream=place.stream,
            bookmark=bookmark(publisher, place.number).decode(),
        )


class Publisher(Document):
    """A publisher; one that is not known has come nowhere."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int | None = Field(description="Of its session; null without one.")
    user: str | None = Field(description="Who opened its session; null without one.")
    sequences: tuple[Standing, ...] = Field(description="How far it has come, by address.")
    complete: bool = Field(description="False: another instance may know more of it.")

    @property
    def is_known(self) -> bool:
        """Whether it has come anywhere, or opened a session."""
        return bool(self.sequences) or self.epoch is not None

    @classmethod
    def of(cls, answer: PublisherAnswer) -> Self:
        """Describe a publisher."""
        return cls(
            publisher=answer.publisher,
            epoch=answer.epoch,
            user=answer.user,
            sequences=tuple(Standing.of(answer.publisher, place) for place in answer.places),
            complete=answer.complete,
        )


class PublisherSession(Document):
    """A session that was opened, and how far its publisher had come then."""

    publisher: str = Field(description="The name of the publisher.")
    epoch: int = Field(description="The number of the session.")
    user: str = Field(description="Who opened its session.")
    opened_at: datetime = Field(description="When it was opened.")
    sequences: tuple[Standing, ...] = Field(description="How far it has come, by address.")
    complete: bool = Field(description="False: another instance may know more of it.")

    @classmethod
    def of(cls, name: str, session: Session, answer: PublisherAnswer) -> Self:
        """Describe a session."""
        return cls(
            publisher=name,
            epoch=session.epoch,
            user=session.user,
            opened_at=time_of(session.opened_at_ms),
            sequences=tuple(Standing.of(name, place) for place in answer.places),
            complete=answer.complete,
        )


class Publishers(Document):
    """A page of names."""

    publishers: tuple[str, ...] = Field(description="Names, in order.")
    next_page_token: str | None = Field(description="Null at the end.")
    complete: bool = Field(description="False: other instances may know more.")

    @classmethod
    def of(cls, answer: PublishersAnswer, page_size: int) -> Self:
        """Describe a page of an answer that may hold a name more."""
        names = answer.publishers[:page_size]
        is_last = len(answer.publishers) <= page_size
        return cls(
            publishers=names,
            next_page_token=None if is_last else token_of([names[-1]]),
            complete=answer.complete,
        )
