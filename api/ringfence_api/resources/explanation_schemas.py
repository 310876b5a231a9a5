"""Schema of an explanation: what was decided about a record or an id, why, and what followed."""

from typing import Final, Literal

from pydantic import Field

from ringfence_api.resources.dead_letter_schemas import DeadLetter, StoredRecord
from ringfence_api.resources.redrives import Redrive
from ringfence_api.schemas import Document, Identifier

Decision = Literal["accepted", "refused", "undecided", "unknown"]
DECISION: Final = (
    "`accepted`: the record, or a record with this id, is remembered as accepted. `refused`: it "
    "has a dead letter of Ringfence. `undecided`: the group has not committed its offset yet. "
    "`unknown`: neither a searched dead letter nor a remembered id is of it."
)


class Explanation(Document):
    """What was decided about a record or an id, why, and what has happened since."""

    position: str | None = Field(
        description="The position that was asked for, as topic-partition@offset; null for an id."
    )
    decision: Decision = Field(description=DECISION)
    sentence: str = Field(description="The decision and its cause as a sentence.")
    dead_letter: DeadLetter | None = Field(
        description="The dead letter of the record; its content needs the role `payload:read`."
    )
    original: StoredRecord | None = Field(
        description="The accepted record of which this one is a duplicate; only with the role "
        "`payload:read`."
    )
    original_error: str | None = Field(
        description="Why the original of a duplicate was not read, as a sentence."
    )
    content_differs: bool | None = Field(
        description="Whether a duplicate has another value than its original; null if they were "
        "not compared. Two JSON documents that differ only in their form are the same value."
    )
    id: Identifier | None = Field(
        description="What the address now knows of the id; null without an address or an id."
    )
    id_error: str | None = Field(
        description="Why the id could not be looked up, as a sentence; null if it was."
    )
    accepted_since: bool | None = Field(
        description="Whether a redrive has accepted the record of the dead letter since, by the "
        "remembered ids and the redrives that are listed; null without a dead letter, and if "
        "it is not certain."
    )
    since: str | None = Field(
        description="What has happened since the decision, as a sentence; null for nothing."
    )
    redrives: tuple[Redrive, ...] = Field(
        description="The redrives that have sent the dead letter, newest first."
    )
    newer_dead_letter: DeadLetter | None = Field(
        description="The newest dead letter of the record, if a redrive was refused again."
    )
    searched: int = Field(
        description="Number of dead letters that were searched, newest first, up to this page."
    )
    next_page_token: str | None = Field(
        description="Send it as `page_token` to search older dead letters; null if there is no "
        "need, or there are none."
    )
