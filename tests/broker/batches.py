"""Batches of one input, committed one after the other as the loop does it, on a real broker.

Every attempt writes a stamp of its own, so `verify` can compare what is committed with the attempts
that were committed, one by one: outputs, changelog, offset and its metadata.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.clock import SystemClock
from ringfence_service.config.load import load
from ringfence_service.config.model import Config
from ringfence_service.dedup.plan import Output, Plan
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.processor.transaction import (
    OutcomeUnknownError,
    TransactionAbortedError,
    TransactionManager,
)
from ringfence_state.model import Edit, PartitionId
from tests.broker.proxy import Proxy
from tests.broker.reading import drained, still_open
from tests.broker.service import configuration
from tests.support.waiting import eventually

OUTPUTS: Final = (0, 1)
"""The partitions of a topic that outputs go to; one more holds the changelog, one is the input."""
CHANGELOG: Final = 2
INPUT: Final = 3
PARTITIONS: Final = 4
GROUP: Final = "batches"
BATCH_BYTES: Final = 1_000_000
TIMEOUT_MS: Final = 10_000
LIMIT_S: Final = 120.0


class Ends(Enum):
    """How a transaction is to end."""

    COMMITS = "commits"
    REFUSED = "aborts as the group refuses its offsets"
    UNDECIDED = "aborts before it is written"


class UnforeseenError(Exception):
    """No error that deciding a record is known to raise."""


class Members:
    """The group of all batches: one member, and the metadata of one that has left."""

    def __init__(self, client: Mapping[str, str], folder: Path, topic: str) -> None:
        self._member = KafkaClients(config(client, folder, "member")).consumer(lambda: None)
        self._member.subscribe([topic])
        former = Consumer(
            {
                **client,
                "group.id": GROUP,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
            }
        )
        former.subscribe([topic])

        def both_are_in() -> bool:
            is_in = self._owns(self._member)  # each of them has to be polled
            return self._owns(former) and is_in

        eventually(both_are_in)
        self.former: Final[object] = former.consumer_group_metadata()
        former.close()
        eventually(lambda: self._owns(self._member, PARTITIONS))

    @property
    def current(self) -> object:
        """The group's metadata of its one member."""
        eventually(lambda: self._owns(self._member, PARTITIONS))  # its session may have run out
        return self._member.consumer_group_metadata()

    def close(self) -> None:
        self._member.close()

    @staticmethod
    def _owns(member: Consumer, partitions: int = 1) -> bool:
        member.poll(0)
        return len(member.assignment()) >= partitions


class Batches:
    """Commits batches to a `topic` of its own, which has the same name as its producer."""

    def __init__(
        self, client: Mapping[str, str], folder: Path, topic: str, proxy: Proxy, members: Members
    ) -> None:
        self._client, self._topic, self._proxy, self._members = client, topic, proxy, members
        self._clients = KafkaClients(config(proxy.client_properties, folder, topic))
        self._transaction_manager = self._new_committer()
        self._next = 0
        self._attempts = 0
        self._committed: list[str] = []
        self._metadata = ""

    def commit(self) -> None:
        """The next batch, in as many attempts as it takes."""
        begun = self._next
        deadline = time.monotonic() + LIMIT_S
        while self._next == begun:
            assert time.monotonic() < deadline, f"batch {begun} is not committed"
            self._attempt(self._members.current, self._pieces())

    def end(self, how: Ends) -> None:
        """One transaction that ends in this way."""
        if how is Ends.COMMITS:
            self.commit()
            return
        begun = self._next
        if how is Ends.REFUSED:
            self._attempt(self._members.former, self._pieces())
        else:
            with suppress(UnforeseenError):
                self._attempt(self._members.current, self._undecided_pieces())
        assert self._next == begun, "a transaction that was to be aborted is committed"

    def verify(self) -> None:
        """Every batch is committed once, from one attempt, and offset and changelog agree."""
        eventually(lambda: not still_open(self._client, self._topic))
        seen = drained(self._client, self._topic, PARTITIONS)
        stamps = [stamp.encode() for stamp in self._committed]
        for partition in (*OUTPUTS, CHANGELOG):
            values = [each.record.value for each in seen if each.partition == partition]
            assert values == stamps, f"partition {partition}: {values} instead of {stamps}"
        logged = [each.offset for each in seen if each.partition == CHANGELOG]
        told = f"{self._committed[-1]} {logged[-1]}" if logged else ""
        assert self._metadata == told, "the offset names another changelog record"
        assert self._told() == (self._next, self._metadata), "the offset is another one"
        assert len(self._committed) == self._next

    def close(self) -> None:
        """Drop the producer, with its threads and connections."""
        self._transaction_manager.close()

    def _new_committer(self) -> TransactionManager:
        return TransactionManager(self._clients, TIMEOUT_MS, SystemClock())

    def _attempt(self, member: object, outputs: Iterator[Sequence[Output]]) -> None:
        """One transaction, and a new life where its outcome is unknown."""
        self._attempts += 1
        offset, stamp, metadata = self._next + 1, self._stamp, ""
        log = PartitionId(self._topic, CHANGELOG)

        def marks(written: Mapping[PartitionId, int]) -> list[TopicPartition]:
            nonlocal metadata
            # None after a copy was refused: the offset is unknown, and the transaction is aborted.
            metadata = f"{stamp} {written.get(log)}"
            return [TopicPartition(self._topic, INPUT, offset, metadata)]

        plan = Plan(edits={log: [Edit(b"%d" % self._next, stamp.encode())]})
        try:
            self._transaction_manager.prepare(BATCH_BYTES)
            self._transaction_manager.commit(plan, outputs, marks, member)
        except TransactionAbortedError:
            return
        except OutcomeUnknownError:
            self._live_again()
            if self._told() != (offset, metadata):
                return
        self._next = offset
        self._committed.append(stamp)
        self._metadata = metadata

    @property
    def _stamp(self) -> str:
        return f"batch {self._next}, attempt {self._attempts}"

    def _pieces(self) -> Iterator[Sequence[Output]]:
        for partition in OUTPUTS:
            value = self._stamp.encode()
            yield [(self._topic, value, None, partition, None, None, 0, [])]

    def _undecided_pieces(self) -> Iterator[Sequence[Output]]:
        """Fails while a request that has trouble is on its way."""
        yield from self._pieces()
        eventually(lambda: self._proxy.struck > 0)
        raise UnforeseenError

    def _live_again(self) -> None:
        """A producer that ends what the one before has begun; then the broker knows the truth."""
        self._transaction_manager.close()
        self._transaction_manager = self._new_committer()

        def is_prepared() -> bool:
            try:
                self._transaction_manager.prepare(BATCH_BYTES)
            except (TransactionAbortedError, OutcomeUnknownError):
                return False
            return True

        eventually(is_prepared)

    def _told(self) -> tuple[int, str]:
        """The committed offset and its metadata, as the broker says."""
        reader = Consumer({**self._client, "group.id": GROUP, "isolation.level": "read_committed"})
        place = TopicPartition(self._topic, INPUT)
        deadline = time.monotonic() + LIMIT_S
        try:
            while True:
                try:
                    (found,) = reader.committed([place], timeout=5)
                except KafkaException:
                    assert time.monotonic() < deadline, "the broker does not tell the offset"
                else:
                    return max(found.offset, 0), found.metadata or ""
        finally:
            reader.close()


def config(client: Mapping[str, str], folder: Path, name: str) -> Config:
    """A configuration of the group, of an instance of this name."""
    file = folder / f"{name}.toml"
    more = f"""
instance = "{name}"
transaction_timeout_ms = {TIMEOUT_MS}
[kafka.producer]
"socket.timeout.ms" = 1000
"metadata.recovery.strategy" = "none"
"""
    route = '[[routes]]\ninputs = ["in"]'
    file.write_text(configuration(client, GROUP, folder, service=more, rest=route))
    return load(file, {})
