"""Evaluator: decides the records of one input partition, by a fast path and a full path.

The fast path takes records that claim an id and nothing else, and those that claim nothing where
they pass unchecked; the full path runs every check in the documented order. Invariant: the fast
path is an optimisation only; without it every record has the same fate.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringfence_client.headers import DUPLICATE_ID_ALIASES, Headers, Reason
from ringfence_service.dedup.address import AddressContext, AddressContexts
from ringfence_service.dedup.apart import ApartRows, Bounds
from ringfence_service.dedup.checks import Checks, DecisionContext, DecisionProgress, output_of
from ringfence_service.dedup.claim import (
    NO_ID,
    NOT_PLAIN,
    NOT_PLAIN_BY_PUBLISHER,
    NOT_PLAIN_WITH_REPLIES,
    identifier_of,
    plain_ids,
    read_membership,
)
from ringfence_service.dedup.fast_paths import FastPath, FastPaths, PassPath
from ringfence_service.dedup.field import UNNAMED
from ringfence_service.dedup.plan import BatchCounts, Plan
from ringfence_service.dedup.record import Record, RejectedError, RepartitionedRecord
from ringfence_service.dedup.route import InputPartition
from ringfence_service.dedup.transaction_group import TransactionGroups
from ringfence_service.dedup.waiting_order import GroupName
from ringfence_service.errors import AwaitedError
from ringfence_service.kafka.model import UNREADABLE, UNREADABLE_CAUSE
from ringfence_service.native.compiled import CompiledDraft
from ringfence_service.native.records import Records
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import NO_CLAIM, Origin, PackedPositions, PartitionId, Rejection

_ID_NAMES: Final = tuple(DUPLICATE_ID_ALIASES)

_OTHERS_MAX: Final = 16
"""After more records that are not plain, and if most are not, compiled code does not pay."""


class FullPath:
    """Decides records of one input partition in one transaction, by every check."""

    def __init__(self, contexts: AddressContexts, checks: Checks) -> None:
        self._contexts = contexts
        self._checks = checks

    def decide(
        self,
        record: Record,
        headers: Headers,
        offset: int,
        grouping: TransactionGroups,
        *,
        forgives: bool = False,
    ) -> None:
        """Decide one record; `offset` is its offset in the partition that decides.

        With `forgives`, the id that it repeats is forgotten and the record is forwarded.
        """
        checks, claim = self._checks, NO_CLAIM
        context: AddressContext | None = None
        try:
            if headers is UNREADABLE:
                headers = []
                raise RejectedError(Reason.UNREADABLE_HEADERS, UNREADABLE_CAUSE)
            checks.check_route()
            home = context = checks.context(record, headers)
            member = read_membership(headers)
            claim = checks.claim(record, headers, context)
            if member is None and checks.is_bridged(context, claim):
                context = self._contexts.bridge(context)
            checks.check_epoch(headers)
            outgoing = headers if member else checks.with_id(record, headers, context, claim)
            checks.check_time(context, claim)
            if member is not None:
                grouping.join(checks, record, headers, context, member, offset, forgives=forgives)
                return
            known = checks.judged(record, context, claim)
            verdict = None if forgives else known
            outgoing = checks.bookmarked(record, outgoing, home, claim)
            outgoing = checks.with_mark(outgoing, context, verdict)
            checks.check_refusal(offset)
            target = checks.target(record, outgoing, context)
        except RejectedError as rejected:
            checks.reject(record, headers, context, claim, rejected.why, offset)
        else:
            if known is not verdict:
                claim = context.draft.renew(claim)
            if not checks.pass_on(context, record, outgoing, target, claim, verdict, offset):
                checks.count_unchecked(record, headers, context, claim)

    def fail(
        self,
        record: Record,
        headers: Headers,
        offset: int,
        grouping: TransactionGroups,
        why: Rejection,
    ) -> None:
        """Dead-letter a record whose checks failed, and the group that it would complete.

        Only the group membership is read again; if that raises too, the record has no group.
        """
        checks = self._checks
        if headers is UNREADABLE:
            headers = []
        checks.reject(record, headers, None, NO_CLAIM, why, offset)
        member_of: tuple[GroupName, int] | None = None
        try:
            member = read_membership(headers)
            if member is not None:
                name = GroupName(checks.address(record, headers), member.group)
                member_of = name, member.position
        except RegistryUnavailableError:
            raise  # it is decided once its address can be read
        except Exception:  # noqa: BLE001 - the content of a record may raise any
            member_of = None
        if member_of is not None:
            origin = checks.origin_of(record)
            cause = f"the record that completes its group is {origin}: {why.cause}"
            grouping.fail(*member_of, Rejection(why.reason, cause), offset)


class Columns(NamedTuple):
    """Records of one input partition, in order; columns of equal length."""

    messages: Sequence[Record]
    offsets: Sequence[int]
    """Offsets in the partition that decides."""
    own_offsets: Sequence[int]
    """Offsets in the input partition."""
    times_ms: Sequence[int]
    headers: Sequence[Headers | None]
    sizes_bytes: Sequence[int]
    """Sizes of the record values."""
    bounds: Bounds

    def row(self, at: int) -> "Columns":
        """Return one of the records."""
        return Columns(
            [self.messages[at]],
            [self.offsets[at]],
            [self.own_offsets[at]],
            [self.times_ms[at]],
            [self.headers[at]],
            [self.sizes_bytes[at]],
            self.bounds,
        )

    def after(self, start: int) -> "Columns":
        """Return the records from a row on."""
        return self._part(slice(start, None))

    def before(self, end: int) -> "Columns":
        """Return the records before a row."""
        return self._part(slice(end))

    def _part(self, rows: slice) -> "Columns":
        return Columns(
            self.messages[rows],
            self.offsets[rows],
            self.own_offsets[rows],
            self.times_ms[rows],
            self.headers[rows],
            self.sizes_bytes[rows],
            self.bounds,
        )


class Evaluator:
    """Decides the records of one input partition in one transaction."""

    def __init__(
        self,
        input_partition: InputPartition,
        rules: DecisionContext,
        tally: BatchCounts,
        contexts: AddressContexts,
        progress: DecisionProgress,
    ) -> None:
        self.checks = Checks(input_partition, rules, tally, contexts, progress)
        self.fast_paths = FastPaths(input_partition, contexts, rules.output_resolver, self.checks)
        self.input_partition = input_partition
        self.route = input_partition.route.settings.name
        self._reads_schemas = input_partition.route.reads_schemas
        self._base = contexts.packed_positions.base(input_partition.source)
        self._source_index, _ = PackedPositions.parts(self._base)
        self._is_own = input_partition.source == progress.source
        self._distances_ms = tally.distances_ms
        self._distance = tally.distances_ms.append
        self._wants_samples = self.checks.wants_samples
        self._repeated: list[tuple[int, str, int, int, int]] = []
        """A duplicate that compiled code has found: its row in the piece, and its original."""
        self._progress = progress
        self.full_path = FullPath(contexts, self.checks)
        self._identifier = identifier_of(input_partition.route.settings.id)
        by_publisher = rules.epochs or rules.book.distinguishes_publishers
        self._not_plain = NOT_PLAIN_BY_PUBLISHER if by_publisher else NOT_PLAIN
        if input_partition.route.settings.reply_topics:
            self._not_plain = NOT_PLAIN_WITH_REPLIES
        self._names = (*_ID_NAMES, *self._not_plain), len(_ID_NAMES)
        self._takes_pieces = self._identifier is None and self.fast_paths.field_name != UNNAMED
        outputs = input_partition.route.outputs()
        self._apart = ApartRows(rules.output_resolver, progress.source, outputs)

    def readable(self, columns: Columns, source: PartitionId, plan: Plan) -> Columns:
        """Return the records up to the first whose schema is not known; then `source` waits."""
        if not self._reads_schemas:
            return columns
        unread = self.input_partition.route.unread(columns.messages)
        if unread is None:
            return columns
        plan.waiting[source] = AwaitedError(unread.sentence, unread.awaits)
        return columns.before(unread.row)

    def decide(self, columns: Columns, grouping: TransactionGroups) -> None:
        """Decide every record; add the outputs to the progress."""
        apart = self._apart.of(columns, columns.bounds)
        if isinstance(columns.messages, Records) and self._takes_pieces:
            start = self._pieces(columns, columns.messages, apart, grouping)
            if start == len(columns.messages):
                return
            columns, apart = columns.after(start), [row - start for row in apart if row >= start]
        self._rows(columns, apart, grouping)

    def _rows(self, columns: Columns, apart: Sequence[int], grouping: TransactionGroups) -> None:
        """Decide every record in Python, the rows in `apart` by the full path.

        This is the only Python loop that runs once per record. Fields that every record has are
        read as columns, in C-level loops. The fields of a record are released once it is sent, so
        they stay in the processor's cache.
        """
        progress, base = self._progress, self._base
        fast_paths, field = self.fast_paths, self.fast_paths.field
        path_of, passing_of = fast_paths.by_value.get, fast_paths.passing.get
        output, now_ms, time_ms = progress.outputs.append, progress.now_ms, progress.time_ms
        ids = self._plain_ids(columns.messages, columns.headers)
        for row in apart:
            ids[row] = None
        own_offsets = columns.own_offsets
        packed_positions = [base + offset for offset in own_offsets] if base else own_offsets
        rows = zip(
            columns.messages,
            columns.offsets,
            packed_positions,
            columns.times_ms,
            columns.headers,
            ids,
            strict=True,
        )
        for message, offset, packed_position, timestamp, headers, identifier in rows:
            if timestamp > time_ms:
                time_ms = timestamp if timestamp <= now_ms else max(time_ms, now_ms)
            key = message.key()
            path: FastPath | PassPath | None = None
            if identifier is not None and timestamp > 0:
                named = None if field is None else field.of(message, headers or ())
                if identifier is not NO_ID:
                    path = path_of(named) or fast_paths.open(named, message, headers or ())
                else:
                    path = passing_of(named) or fast_paths.open_passing(
                        named, message, headers or ()
                    )
            if path is not None and identifier is not None:
                number = path.admit(identifier, packed_position, time_ms)
                if number is None:
                    partition = path.unkeyed if key is None else path.keyed
                    value = message.value()
                    output(
                        (path.topic, value, key, partition, None, None, timestamp, headers or [])
                    )
                    continue
                assert isinstance(path, FastPath)  # a PassPath admits every record
                repeat = identifier, packed_position - base, timestamp, time_ms
                if self._is_repeated(path, number, message, headers or [], *repeat):
                    continue
            progress.time_ms = time_ms
            record: Record = (
                message if self._is_own else RepartitionedRecord(message, packed_position - base)
            )
            self.full_path.decide(record, [] if headers is None else headers, offset, grouping)
        progress.time_ms = time_ms

    def _pieces(
        self,
        columns: Columns,
        records: Records,
        apart: Sequence[int],
        grouping: TransactionGroups,
    ) -> int:
        """Decide records of a piece, plain ones in compiled code; return how many are decided."""
        progress, fast_paths, others, row = self._progress, self.fast_paths, 0, 0
        fetched = -1
        clock = self._source_index, progress.now_ms, self._distances_ms, self._repeated
        rules = fast_paths.lanes, fast_paths.field_name, self._names, *clock
        for end in (*apart, len(records)):
            run = records.part(0, end)
            while row <= end:
                at, progress.time_ms, known, wanted = run.admit(row, *rules, progress.time_ms)
                if self._repeated and self._wants_samples:
                    self._sample_row(columns, records)
                progress.send(records, row, at)
                if at == len(records) or (others > _OTHERS_MAX and 2 * others > at):
                    return at
                if known is not None and at != fetched:
                    draft = self._draft_of(columns, at)
                    if draft.fetch(known, wanted or ()):
                        fetched = row = at  # it can be decided now, unless it has too many
                        continue
                row = at + 1
                if known is None or not self._is_known(columns, at, known):
                    # Apart, not plain, of an address that is not open yet, or new in spite of its
                    # hash.
                    self._rows(columns.row(at), [0] if at == end else [], grouping)
                    others += 1
        return row

    def _sample(self, offset: int, value: bytes | None, original: Origin) -> None:
        """Have a duplicate compared with its original, unless its route has enough by now."""
        self._wants_samples = self.checks.wants_samples
        if self._wants_samples:
            self.checks.sample(offset, value, original)

    def _sample_row(self, columns: Columns, records: Records) -> None:
        """Have the duplicate that compiled code has kept compared with its original."""
        row, topic, partition, offset, time_ms = self._repeated.pop()
        at, original = row - records.start, Origin(topic, partition, offset, time_ms)
        self._sample(columns.own_offsets[at], records[at].value(), original)

    def _path_of(self, columns: Columns, at: int) -> FastPath:
        """Return the path of a record whose id compiled code has looked for."""
        message, headers = columns.messages[at], columns.headers[at] or []
        field = self.fast_paths.field
        fast_path = self.fast_paths.by_value[None if field is None else field.of(message, headers)]
        assert fast_path is not None  # compiled code has its draft
        return fast_path

    def _draft_of(self, columns: Columns, at: int) -> CompiledDraft:
        draft = self._path_of(columns, at).draft
        assert isinstance(draft, CompiledDraft)
        return draft

    def _is_known(self, columns: Columns, at: int, identifier: bytes) -> bool:
        """Decide a plain record whose id may be known; return False if Python has to."""
        message, headers = columns.messages[at], columns.headers[at] or []
        fast_path = self._path_of(columns, at)
        number = self._draft_of(columns, at).judge_at(identifier, self._progress.time_ms)
        if number is None:
            return False
        repeat = identifier, columns.own_offsets[at], columns.times_ms[at], self._progress.time_ms
        return self._is_repeated(fast_path, number, message, headers, *repeat)

    def fail(self, columns: Columns, grouping: TransactionGroups, why: Rejection) -> None:
        """Dead-letter records whose checks failed, without running the checks again."""
        rows = zip(
            columns.messages, columns.offsets, columns.own_offsets, columns.headers, strict=True
        )
        for message, offset, own_offset, headers in rows:
            record: Record = message if self._is_own else RepartitionedRecord(message, own_offset)
            self.full_path.fail(record, headers or [], offset, grouping, why)

    def _is_repeated(
        self,
        fast_path: FastPath,
        number: int,
        message: Record,
        headers: Headers,
        identifier: bytes,
        offset: int,
        timestamp_ms: int,
        time_ms: int,
    ) -> bool:
        """Decide a duplicate found on a fast path; return False if the full path has to."""
        if self._wants_samples and (fast_path.drops or fast_path.dead_letter is not None):
            self._sample(offset, message.value(), fast_path.draft.origin(number))
        if fast_path.drops:
            fast_path.count_lane()
            if not fast_path.repeats:
                fast_path.dropped = number, time_ms
        elif fast_path.dead_letter is not None:
            origin = fast_path.draft.origin(number)
            self._distance(time_ms - origin.time_ms)
            envelope = self.checks.envelope(fast_path.context)
            letter = envelope.repetition(headers, offset, timestamp_ms, identifier, origin)
            target, now_ms = fast_path.dead_letter, self._progress.now_ms
            self._progress.outputs.append(output_of(message, target, letter, now_ms))
        else:
            return False
        fast_path.draft.refresh(identifier, number, time_ms)
        fast_path.repeats += 1
        return True

    def _plain_ids(
        self, messages: Sequence[Record], column: Sequence[Headers | None]
    ) -> list[bytes | None]:
        if self._identifier is None:
            return plain_ids(column, self._not_plain)
        ids = self._identifier.plain(messages, column, self._not_plain)
        if not self.checks.has_late_ids:
            return ids
        is_here = self.checks.is_decided_here
        return [
            each if each is None or each is NO_ID or is_here(message, headers or ()) else None
            for each, message, headers in zip(ids, messages, column, strict=True)
        ]
