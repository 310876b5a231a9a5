"""Fates: the way of the few records that are not plain, by every check in the contract's order.

Headers readable, address, claim, session, expiry, transaction group, duplicate or order, target
and size.
`decide` has a short cut for the others, which comes to the same.
"""

from contextlib import suppress

from ringfence.headers import Reason
from service.checks import Checks
from service.claim import read_membership
from service.consume import UNREADABLE, UNREADABLE_CAUSE
from service.grouping import Grouping
from service.groups import GroupName
from service.place import Place, Places
from service.record import Record
from service.rejection import RejectedError
from service.route import Headers
from state.claim import NO_CLAIM
from state.rejection import Rejection


class Fates:
    """The records of one inlet in one transaction."""

    def __init__(self, places: Places, checks: Checks) -> None:
        self._places = places
        self._checks = checks

    def decide(
        self,
        record: Record,
        headers: Headers,
        offset: int,
        grouping: Grouping,
        *,
        forgives: bool = False,
    ) -> None:
        """Give one record its fate; `offset` is where it stands in the partition that decides.

        With `forgives`, what it repeats is forgotten and it goes out.
        """
        checks, claim = self._checks, NO_CLAIM
        place: Place | None = None
        try:
            if headers is UNREADABLE:
                headers = []
                raise RejectedError(Reason.UNREADABLE_HEADERS, UNREADABLE_CAUSE)
            checks.check_inlet()
            home = place = checks.place(record, headers)
            member = read_membership(headers)
            claim = checks.claim(record, headers, place)
            if member is None and checks.is_bridged(place, claim):
                place = self._places.bridge(place)
            checks.check_epoch(headers)
            outgoing = headers if member else checks.with_id(record, headers, place, claim)
            checks.check_time(place, claim)
            if member is not None:
                grouping.join(checks, record, headers, place, member, offset, forgives=forgives)
                return
            known = checks.judged(record, place, claim)
            verdict = None if forgives else known
            outgoing = checks.bookmarked(record, outgoing, home, claim)
            outgoing = checks.told(outgoing, place, verdict)
            checks.check_refusal(offset)
            target = checks.target(record, outgoing, place)
        except RejectedError as rejected:
            checks.reject(record, headers, place, claim, rejected.why, offset)
        else:
            if known is not verdict:
                claim = self._places.let_go(place, claim)
            checks.pass_on(place, record, outgoing, target, claim, verdict)

    def fail(
        self, record: Record, headers: Headers, offset: int, grouping: Grouping, why: Rejection
    ) -> None:
        """Dead-letter a record whose checks failed, and the group that it would complete.

        Only its group is read again; where that fails too, it has none.
        """
        checks = self._checks
        if headers is UNREADABLE:
            headers = []
        checks.reject(record, headers, None, NO_CLAIM, why, offset)
        name, position = None, 0
        with suppress(Exception):
            member = read_membership(headers)
            if member is not None:
                name = GroupName(checks.address(record, headers), member.group)
                position = member.position
        if name is not None:
            cause = f"the record that completes its group is {checks.at(record)}: {why.cause}"
            grouping.fail(name, position, Rejection(why.reason, cause), offset)
