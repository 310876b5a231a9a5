"""Transaction group: its records are accepted together, rejected together, or time out together.

A group takes effect at its last record, as if all its records arrived there in the order of their
positions. Nothing of an incomplete group is remembered, so a resent group is decided as a whole. As
in Artemis, a duplicate rejects its transaction, but two records of one id within it are accepted.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final

from ringfence_client.headers import Headers, Reason
from ringfence_service.dedup.address import AddressContext, AddressContexts
from ringfence_service.dedup.checks import Checks, GroupMember, Open, counts
from ringfence_service.dedup.claim import GroupClaim
from ringfence_service.dedup.pending_groups import PendingGroupsDraft
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_state.model import NO_CLAIM, Claim, Rejection
from ringfence_state.pending_group import HEADERS_MAX, PendingRecord

GROUPS_MAX: Final = 100_000
"""How many groups of all addresses may wait on a partition: each takes some 1.2 KB of memory.

An address that may have more of its own raises it.
"""
BYTES_MAX: Final = 4 * 1024**3
"""How many bytes their records may have: all are in the changelog, and a restore reads them."""
_GIVEN_UP_AT_ONCE: Final = 8
"""How many groups one record may displace after `groups_open_max` was lowered.

Later records displace the rest. It is only one if the transaction has no room for more.
"""


class TransactionGroups:
    """Decides the groups of one partition in one transaction."""

    def __init__(self, draft: PendingGroupsDraft, contexts: AddressContexts, open_: Open) -> None:
        """`open_` restores a pending record from the state."""
        self._draft = draft
        self._contexts = contexts
        self._open = open_

    def join(
        self,
        checks: Checks,
        record: Record,
        headers: Headers,
        context: AddressContext,
        member: GroupClaim,
        offset: int,
        *,
        forgives: bool,
    ) -> None:
        """Store a record for its group, and decide the group if it is complete.

        RejectedError for a record that its group cannot take. `offset` is the record's offset in
        the partition that decides. With `forgives`, ids that the completed group repeats are
        forgotten.
        """
        name, settings = GroupName(context.name, member.group), context.settings
        kept = checks.with_origin(record, headers)
        if len(kept) > HEADERS_MAX:
            cause = f"it has {len(headers)} headers; with more than {HEADERS_MAX} it cannot wait"
            raise RejectedError(Reason.GROUP_TOO_LARGE, cause)
        self._check(name, member, context, checks, offset)
        pending_record = _pending_record(record, kept, member.size, offset)
        earlier = self._draft.park(name, member.position, pending_record)
        if earlier is not None:
            self._replace(earlier, member, context, str(checks.origin_of(record)), offset)
        group = self._draft.find(name)
        assert group is not None  # a record was stored in it
        if group.bytes > settings.group_bytes_max:
            cause = f"its group is larger than group_bytes_max, {settings.group_bytes_max} bytes"
            self._give_up(name, Rejection(Reason.GROUP_TOO_LARGE, cause), offset)
        elif group.is_complete:
            self._decide(name, context, offset, forgives=forgives)
        limit = settings.groups_open_max
        limit_of_all = max(GROUPS_MAX, limit)
        for number in range(_GIVEN_UP_AT_ONCE):
            address: str | None = None
            if self._draft.waiting.of(context.name) > limit:
                address = context.name
                cause = f"{limit} groups waited, as many as groups_open_max allows"
            elif self._draft.open_count > limit_of_all:
                cause = (
                    f"{limit_of_all} groups of all addresses waited, as many as a partition keeps"
                )
            elif self._draft.open_bytes > BYTES_MAX:
                cause = f"groups of {BYTES_MAX} bytes waited, as many as a partition keeps"
            else:
                break
            if number and not self._draft.has_room:
                break
            why = Rejection(Reason.GROUP_INCOMPLETE, cause)
            self._give_up(self._draft.eldest(address), why, offset)

    def time_out(self, name: GroupName) -> list[PendingRecord]:
        """Dead-letter the pending records of a group that is overdue, and return them."""
        timeout_ms = self._contexts.at(name.address).settings.group_timeout_ms
        cause = f"its group was not complete after group_timeout_ms, {timeout_ms} ms"
        return self._give_up(name, Rejection(Reason.GROUP_INCOMPLETE, cause))

    def _give_up(
        self, name: GroupName, why: Rejection, blamed: int | None = None
    ) -> list[PendingRecord]:
        """Dead-letter the pending records of a group, and return them.

        `blamed` is the offset of the record that ends the group. If it is None, no record does, and
        each dead letter that the broker refuses is blamed on its own record.
        """
        context, records = self._contexts.at(name.address), self._draft.end(name)
        for pending_record in records:
            self._reject(
                pending_record,
                context,
                why,
                pending_record.own_offset if blamed is None else blamed,
            )
        return records

    def fail(self, name: GroupName, position: int, why: Rejection, blamed: int) -> None:
        """Dead-letter a group that lacks only this position, whose record cannot be decided."""
        group = self._draft.find(name)
        if group is not None and group.would_complete(position):
            self._give_up(name, why, blamed)

    def _check(
        self,
        name: GroupName,
        member: GroupClaim,
        context: AddressContext,
        checks: Checks,
        offset: int,
    ) -> None:
        """Raise RejectedError for a record that does not fit into its group."""
        limit = context.settings.group_records_max
        if member.size > limit:
            cause = f"its group has {member.size} records; group_records_max is {limit}"
            raise RejectedError(Reason.GROUP_TOO_LARGE, cause)
        group = self._draft.find(name)
        if group is None:
            self._contexts.check_room(context, checks.time_ms)
        elif group.size != member.size:
            cause = f"earlier records give its group {group.size} records, this one {member.size}"
            raise RejectedError(Reason.INVALID_CLAIM, cause)
        if group is None or not group.would_complete(member.position):
            checks.check_refusal(offset)

    def _replace(
        self,
        earlier: PendingRecord,
        member: GroupClaim,
        context: AddressContext,
        later: str,
        blamed: int,
    ) -> None:
        """Dead-letter the earlier copy of a position as a duplicate of the later one."""
        cause = f"position {member.position} of its group came again at {later}; that copy counts"
        self._reject(earlier, context, Rejection(Reason.DUPLICATE, cause, later), blamed)

    def _reject(
        self, pending_record: PendingRecord, context: AddressContext, why: Rejection, blamed: int
    ) -> None:
        checks, record, headers = self._open(pending_record)
        checks.reject(record, headers, context, NO_CLAIM, why, blamed)

    def _decide(
        self, name: GroupName, context: AddressContext, closed_by: int, *, forgives: bool
    ) -> None:
        """Decide a complete group; `closed_by` is blamed for what the broker refuses of it."""
        records = [self._open(pending_record) for pending_record in self._draft.end(name)]
        claims = [NO_CLAIM] * len(records)
        try:
            claims = [checks.claim(record, headers, context) for checks, record, headers in records]
            for checks, _, headers in records:
                checks.check_route()
                checks.check_epoch(headers)  # a later session may have opened meanwhile
            known = _verdicts(records, claims, context)
            verdicts = [None if forgives and _repeats(why) else why for why in known]
            _check_verdicts(verdicts, context)
            outgoing = [
                each.checks.with_mark(
                    each.checks.bookmarked(each.record, headers, context, claim), context, verdict
                )
                for each, headers, claim, verdict in zip(
                    records, _with_ids(records, claims, context), claims, verdicts, strict=True
                )
            ]
            records[0].checks.check_refusal(closed_by)
            targets = [
                each.checks.target(each.record, headers, context)
                for each, headers in zip(records, outgoing, strict=True)
            ]
        except RejectedError as rejected:
            for (checks, record, headers), claim in zip(records, claims, strict=True):
                checks.reject(record, headers, context, claim, rejected.why, closed_by)
            return
        full_path = zip(records, outgoing, targets, claims, verdicts, known, strict=True)
        is_checked = False
        for each, headers, target, claim, verdict, repeated in full_path:
            kept = claim if repeated is verdict else context.draft.renew(claim)
            passed = (context, each.record, headers, target, kept, verdict, closed_by)
            is_checked |= each.checks.pass_on(*passed)
        if not is_checked:  # else one id checks the whole group
            for (checks, record, headers), claim in zip(records, claims, strict=True):
                checks.count_unchecked(record, headers, context, claim)


def _verdicts(
    records: Sequence[GroupMember], claims: Sequence[Claim], context: AddressContext
) -> list[Rejection | None]:
    """Return for each record of a group why it is rejected, or None."""
    origins = [checks.origin_of(record) for checks, record, _ in records]
    is_counted = [counts(context, claim) for claim in claims]
    counting = list(compress(claims, is_counted)), list(compress(origins, is_counted))
    found = iter(context.draft.verdicts(*counting))
    for claim, origin in zip(*counting, strict=True):
        why = context.draft.verdict(claim, origin)
        if why is not None and why.reason is Reason.DUPLICATE:
            context.draft.repeated(claim, origin)
    return [next(found) if counted else None for counted in is_counted]


def _repeats(why: Rejection | None) -> bool:
    return why is not None and why.reason is Reason.DUPLICATE


def _with_ids(
    records: Sequence[GroupMember], claims: Sequence[Claim], context: AddressContext
) -> list[Headers]:
    """Return the headers to forward; one id in the group is enough."""
    if any(map(context.strategy.claims, claims)):
        return [headers for _, _, headers in records]
    pairs = zip(records, claims, strict=True)
    return [each.checks.with_id(each.record, each.headers, context, claim) for each, claim in pairs]


def _check_verdicts(verdicts: Sequence[Rejection | None], context: AddressContext) -> None:
    """Raise RejectedError if one of them rejects the group."""
    for position, why in enumerate(verdicts, 1):
        if why is None:
            continue
        is_repeated = _repeats(why)
        if is_repeated and context.settings.on_duplicate == "mark":
            continue
        reason = Reason.DUPLICATE_IN_GROUP if is_repeated else why.reason
        raise RejectedError(reason, f"position {position} of its group: {why.cause}", why.original)


def _pending_record(record: Record, headers: Headers, size: int, offset: int) -> PendingRecord:
    whole = (record.timestamp()[1], record.key(), record.value(), list(headers))
    return PendingRecord(size, offset, offset, *whole)
