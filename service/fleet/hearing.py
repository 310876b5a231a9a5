"""Hearing: what other instances ask, answered from the own processes alone."""

from collections.abc import Callable

from service.control import Desk
from service.fleet.messages import (
    Question,
    Refusal,
    Reply,
    Roll,
    RollCall,
    owned_by,
    question_of,
    refusal_of,
    reply_text,
)
from service.queries.table import Answer
from service.status import Status


class Hearing:
    """See the module."""

    def __init__(
        self,
        crew: Desk,
        roll: Callable[[], Roll],
        check: Callable[[Status], None],
        admits: Callable[[str | None], bool] | None,
    ) -> None:
        """`check` raises where the state is not whole; `admits` knows a peer by what it bears.

        Without `admits` nothing tells a peer from others: who may ask, the caller has to know.
        """
        self._crew = crew
        self._roll = roll
        self._check = check
        self.admits = admits

    async def reply(self, text: bytes) -> bytes:
        """Answer a question; CodecError where it is none."""
        question = question_of(text)
        told = await self._told(question)
        status = self._roll().status
        return reply_text(Reply(status.instance, told, owned_by(status), status.partitions_total))

    async def _told(self, question: Question) -> Answer | Roll | Refusal:
        roll = self._roll()
        if question.to != roll.status.instance:
            return Refusal("Unavailable", f"This is instance {roll.status.instance}.")
        if isinstance(question.query, RollCall):
            return roll
        try:
            self._check(roll.status)
            answer: Answer = await self._crew.ask(question.query, question.timeout_ms / 1000)
        except Exception as reason:
            refusal = refusal_of(reason)
            if refusal is None:
                raise
            return refusal
        return answer
