"""The fake's transaction coordinator: one entry per transactional id, fenced by its epoch.

A transaction is decided at one moment and its markers are written after it, one partition at a
time and in any order: until then its offsets and records are pending.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaError

from ringfence_state.model import PartitionId
from tests.fakes.errors import fenced, in_no_transaction, plain
from tests.fakes.group import Committed, Group
from tests.fakes.partition import Fate, Partition, Record, Transaction


@dataclass(eq=False, slots=True)
class Producing:
    """What the coordinator knows of one transactional id."""

    timeout_ms: int
    epoch: int = 0
    by: str = ""
    open: Transaction | None = None
    partitions: dict[Partition, None] = field(default_factory=dict)
    offsets: dict[tuple[str, PartitionId], tuple[Group, Committed]] = field(default_factory=dict)
    markers: list[Callable[[], None]] = field(default_factory=list)
    ended: Fate | None = None
    """What became of the last transaction."""
    groups: set[str] = field(default_factory=set)
    """Those whose offsets may join the open transaction."""
    sequences: Counter[Partition] = field(default_factory=Counter)
    """How many records of this epoch each partition has taken."""

    def initialise(self, timeout_ms: int, by: str = "") -> int:
        """Resolve what an earlier producer left, fence it, and return the new epoch."""
        self.fence()
        self.write_markers()
        self.timeout_ms = timeout_ms
        self.by = by
        return self.epoch

    def fence(self) -> None:
        """Raise the epoch; an open transaction is aborted."""
        self.epoch += 1
        self.sequences.clear()
        if self.open:
            self._decide(Fate.ABORTED)

    def check(self, epoch: int) -> None:
        """Refuse a producer of an older epoch."""
        if epoch != self.epoch:
            raise fenced()

    def append(self, epoch: int, partition: Partition, record: Record, now_ms: int) -> int:
        """Write one record of the open transaction; returns its offset."""
        transaction = self._join(epoch, now_ms)
        self.partitions[partition] = None
        self.sequences[partition] += 1
        return partition.append(record, transaction)

    def append_late(
        self, epoch: int, partition: Partition, record: Record, sequence: int, now_ms: int
    ) -> None:
        """Take a copy of a Produce request: it is refused unless its sequence number is next."""
        self.check(epoch)
        if sequence != self.sequences[partition] or partition not in self.partitions:
            raise plain(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "Broker: it was written before")
        self.append(epoch, partition, record, now_ms)

    def add_partition(self, epoch: int, partition: Partition, now_ms: int) -> None:
        """Have a partition join the transaction, which begins with it if none is open."""
        self._join(epoch, now_ms)
        self.partitions[partition] = None

    def add_offsets(
        self, epoch: int, group: Group, offsets: dict[PartitionId, Committed], now_ms: int
    ) -> None:
        """Make offsets of `group` pending until the transaction is decided."""
        self._join(epoch, now_ms)
        self.groups.add(group.name)
        for place, committed in offsets.items():
            if (group.name, place) not in self.offsets:
                group.unstable[place] += 1
            self.offsets[group.name, place] = (group, committed._replace(by=self.by))

    def add_offsets_late(
        self, epoch: int, group: Group, offsets: dict[PartitionId, Committed], now_ms: int
    ) -> None:
        """Take a copy of a TxnOffsetCommit: it opens no transaction, but joins the open one."""
        self.check(epoch)
        if self.open is None or group.name not in self.groups:
            raise plain(KafkaError.INVALID_TXN_STATE, "Broker: no transaction of this group")
        self.add_offsets(epoch, group, offsets, now_ms)

    def end(self, epoch: int, fate: Fate) -> None:
        """Commit or abort; a request that comes again is answered as before."""
        self.check(epoch)
        if self.open:
            self._decide(fate)
        elif fate is not self.ended:
            raise in_no_transaction()

    def end_late(self, epoch: int, fate: Fate) -> None:
        """Take a copy of an EndTxn: it ends whatever is open."""
        self.check(epoch)
        if self.open is None:
            raise in_no_transaction()
        self._decide(fate)

    def expire(self, now_ms: int) -> bool:
        """Abort and fence a transaction that is older than its timeout; tells whether it was."""
        is_old = self.open is not None and now_ms - self.open.started_ms > self.timeout_ms
        if is_old:
            self.fence()
        return is_old

    def write_markers(self) -> None:
        """Write every marker still owed."""
        while self.markers:
            self.markers.pop()()

    def _join(self, epoch: int, now_ms: int) -> Transaction:
        self.check(epoch)
        self.write_markers()  # The broker answers CONCURRENT_TRANSACTIONS until they are written.
        if self.open is None:
            self.open = Transaction(now_ms, self.by)
        return self.open

    def _decide(self, fate: Fate) -> None:
        transaction = self.open
        assert transaction is not None
        transaction.fate = self.ended = fate
        for partition in self.partitions:
            self.markers.append(lambda p=partition: p.mark(transaction))  # type: ignore[misc]
        for (_, place), (group, committed) in self.offsets.items():
            self.markers.append(_offset_marker(group, place, committed, fate))
        self.open, self.partitions, self.offsets = None, {}, {}
        self.groups.clear()


def _offset_marker(
    group: Group, place: PartitionId, committed: Committed, fate: Fate
) -> Callable[[], None]:
    def write() -> None:
        group.unstable[place] -= 1
        if fate is Fate.COMMITTED:
            group.store(place, committed)

    return write
