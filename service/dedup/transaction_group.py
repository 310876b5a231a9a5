"""Transaction group: records that are accepted together, or none of them is.

A group takes effect at its last record, as if all its records stood there in the order of their
positions. Nothing of an incomplete group is remembered, so a resent group is decided as a whole. As
in Artemis, a duplicate rejects its transaction, but two records of one id within it are accepted.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final

from ringfence.headers import Headers, Reason
from service.dedup.address import AddressContext, AddressContexts
from service.dedup.checks import Checks, GroupMember, Open, counts
from service.dedup.claim import GroupClaim
from service.dedup.pending_groups import GroupName, PendingGroup, PendingGroupsDraft
from service.dedup.record import Record, RejectedError
from state.model import NO_CLAIM, Claim, Rejection
from state.pending_group import HEADERS_MAX, PendingRecord

_GIVEN_UP_AT_ONCE: Final = 8
"""Groups that one record may displace where fewer may wait than before; later records go on.

It is one where the transaction has no room for more.
"""


class TransactionGroups:
    """The groups of one partition in one transaction."""

    def __init__(self, draft: PendingGroupsDraft, places: AddressContexts, open_: Open) -> None:
        """`open_` takes what waited out of the state."""
        self._draft = draft
        self._places = places
        self._open = open_

    def join(
        self,
        checks: Checks,
        record: Record,
        headers: Headers,
        place: AddressContext,
        member: GroupClaim,
        offset: int,
        *,
        forgives: bool,
    ) -> None:
        """Keep a record for its group, and decide the group where nothing is missing any more.

        RejectedError for a record that its group cannot take. `offset` is where it stands in the
        partition that decides. With `forgives`, what a group repeats that it completes is
        forgotten.
        """
        name, settings = GroupName(place.name, member.group), place.settings
        kept = checks.traced(record, headers)
        if len(kept) > HEADERS_MAX:
            cause = f"it has {len(headers)} headers; with more than {HEADERS_MAX} it cannot wait"
            raise RejectedError(Reason.GROUP_TOO_LARGE, cause)
        self._check(name, member, place, checks, offset)
        pending_record = _pending_record(record, kept, member.size, offset)
        earlier = self._draft.park(name, member.position, pending_record)
        if earlier is not None:
            self._replace(earlier, member, place, str(checks.at(record)), offset)
        group = self._draft.find(name)
        assert group is not None  # a record was parked in it
        if group.bytes > settings.group_bytes_max:
            cause = f"its group is larger than group_bytes_max, {settings.group_bytes_max} bytes"
            self.give_up(name, Rejection(Reason.GROUP_TOO_LARGE, cause), offset)
        elif group.is_complete:
            self._decide(name, place, offset, forgives=forgives)
        most = settings.groups_open_max
        for number in range(_GIVEN_UP_AT_ONCE):
            is_enough = self._draft.waiting[place.name] <= most
            if is_enough or (number and not self._draft.has_room):
                break
            cause = f"{most} groups waited, as many as groups_open_max allows"
            why = Rejection(Reason.GROUP_INCOMPLETE, cause)
            self.give_up(self._draft.eldest(place.name), why, offset)

    def give_up(
        self, name: GroupName, why: Rejection, blamed: int | None = None
    ) -> list[PendingRecord]:
        """Dead-letter what waits in a group; `blamed` is the offset of the record that ends it.

        None where no record does: then each of the group stands for itself.
        """
        place, records = self._places.at(name.address), self._draft.end(name)
        for pending_record in records:
            self._reject(
                pending_record, place, why, pending_record.own_offset if blamed is None else blamed
            )
        return records

    def fail(self, name: GroupName, position: int, why: Rejection, blamed: int) -> None:
        """Dead-letter what waits in a group that lacks only a record which is not decided."""
        group = self._draft.find(name)
        if group is not None and _would_complete(group, position):
            self.give_up(name, why, blamed)

    def _check(
        self,
        name: GroupName,
        member: GroupClaim,
        place: AddressContext,
        checks: Checks,
        offset: int,
    ) -> None:
        """RejectedError for a record that does not fit into its group."""
        most = place.settings.group_records_max
        if member.size > most:
            cause = f"its group has {member.size} records; group_records_max is {most}"
            raise RejectedError(Reason.GROUP_TOO_LARGE, cause)
        group = self._draft.find(name)
        if group is None:
            self._places.check_room(place)
        elif group.size != member.size:
            cause = f"its group has {group.size} records by those before, {member.size} by this one"
            raise RejectedError(Reason.INVALID_CLAIM, cause)
        if group is None or not _would_complete(group, member.position):
            checks.check_refusal(offset)

    def _replace(
        self,
        earlier: PendingRecord,
        member: GroupClaim,
        place: AddressContext,
        later: str,
        blamed: int,
    ) -> None:
        """The copy that came before repeats this one."""
        cause = f"position {member.position} of its group came again at {later}, and that counts"
        self._reject(earlier, place, Rejection(Reason.DUPLICATE, cause, later), blamed)

    def _reject(
        self, pending_record: PendingRecord, place: AddressContext, why: Rejection, blamed: int
    ) -> None:
        checks, record, headers = self._open(pending_record)
        checks.reject(record, headers, place, NO_CLAIM, why, blamed)

    def _decide(
        self, name: GroupName, place: AddressContext, closed_by: int, *, forgives: bool
    ) -> None:
        """A group of which nothing is missing; what the broker refuses of it, its last one did."""
        records = [self._open(pending_record) for pending_record in self._draft.end(name)]
        claims = [NO_CLAIM] * len(records)
        try:
            claims = [checks.claim(record, headers, place) for checks, record, headers in records]
            for checks, _, headers in records:
                checks.check_inlet()
                checks.check_epoch(headers)  # another session may have begun meanwhile
            known = _verdicts(records, claims, place)
            verdicts = [None if forgives and _repeats(why) else why for why in known]
            _check_verdicts(verdicts, place)
            outgoing = [
                each.checks.told(
                    each.checks.bookmarked(each.record, headers, place, claim), place, verdict
                )
                for each, headers, claim, verdict in zip(
                    records, _with_ids(records, claims, place), claims, verdicts, strict=True
                )
            ]
            records[0].checks.check_refusal(closed_by)
            targets = [
                each.checks.target(each.record, headers, place)
                for each, headers in zip(records, outgoing, strict=True)
            ]
        except RejectedError as rejected:
            for (checks, record, headers), claim in zip(records, claims, strict=True):
                checks.reject(record, headers, place, claim, rejected.why, closed_by)
            return
        full_path = zip(records, outgoing, targets, claims, verdicts, known, strict=True)
        for each, headers, target, claim, verdict, repeated in full_path:
            kept = claim if repeated is verdict else self._places.let_go(place, claim)
            each.checks.pass_on(place, each.record, headers, target, kept, verdict)


def _verdicts(
    records: Sequence[GroupMember], claims: Sequence[Claim], place: AddressContext
) -> list[Rejection | None]:
    """Why each record of a group is refused, in their order."""
    at = [checks.at(record) for checks, record, _ in records]
    is_counted = [counts(place, claim) for claim in claims]
    counting = list(compress(claims, is_counted)), list(compress(at, is_counted))
    found = iter(place.draft.verdicts(*counting))
    for claim, origin in zip(*counting, strict=True):
        why = place.draft.verdict(claim, origin)
        if why is not None and why.reason is Reason.DUPLICATE:
            place.draft.repeated(claim, origin)
    return [next(found) if counted else None for counted in is_counted]


def _repeats(why: Rejection | None) -> bool:
    return why is not None and why.reason is Reason.DUPLICATE


def _with_ids(
    records: Sequence[GroupMember], claims: Sequence[Claim], place: AddressContext
) -> list[Headers]:
    """The headers to send on; one id suffices for the group."""
    if any(map(place.strategy.claims, claims)):
        return [headers for _, _, headers in records]
    pairs = zip(records, claims, strict=True)
    return [each.checks.with_id(each.record, each.headers, place, claim) for each, claim in pairs]


def _check_verdicts(verdicts: Sequence[Rejection | None], place: AddressContext) -> None:
    """RejectedError where one of them rejects the group."""
    for position, why in enumerate(verdicts, 1):
        if why is None:
            continue
        is_repeated = _repeats(why)
        if is_repeated and place.settings.on_duplicate == "mark":
            continue
        reason = Reason.DUPLICATE_IN_GROUP if is_repeated else why.reason
        raise RejectedError(reason, f"position {position} of its group: {why.cause}", why.original)


def _would_complete(group: PendingGroup, position: int) -> bool:
    """Whether nothing is missing once a record at this position is there."""
    return len(group.bytes_of.keys() | {position}) == group.size


def _pending_record(record: Record, headers: Headers, size: int, offset: int) -> PendingRecord:
    whole = (record.timestamp()[1], record.key(), record.value(), list(headers))
    return PendingRecord(size, offset, offset, *whole)
