"""Trouble: what may go wrong at a step, and the freedoms of a cluster, drawn from the seed."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaError

from ringfence_state.model import PartitionId
from ringfence_state.store import StoreCorruptError, StoreFailedError
from tests.fakes.errors import abortable, fenced, plain, retriable
from tests.fakes.log import Chance
from tests.simulation.scenario import Scenario


class Crash(BaseException):
    """The process is gone: nothing may catch it, and nothing it does afterwards counts."""


class Failure(NamedTuple):
    """What a step may answer, and which kind of fault that is."""

    kind: str
    error: Callable[[], Exception]


_LATE = Failure("no answer", lambda: retriable(KafkaError._TIMED_OUT, "no answer in time"))
_GONE = Failure("no answer", lambda: plain(KafkaError._TRANSPORT, "the connection is gone"))
_TIMED_OUT = Failure("no answer", lambda: plain(KafkaError._TIMED_OUT, "no answer in time"))
_QUEUE_IS_FULL = Failure("no answer", lambda: BufferError("queue full"))
_TO_ABORT = Failure("must abort", lambda: abortable(KafkaError._TIMED_OUT, "the broker refused"))
_SHARING_OUT = Failure(
    "must abort", lambda: abortable(KafkaError.REBALANCE_IN_PROGRESS, "the group is sharing out")
)
FENCED = Failure("fenced", fenced)
_DAMAGED = Failure("disk", lambda: StoreCorruptError(PartitionId("in", 0), "a bit flipped"))
_FULL = Failure("disk", lambda: StoreFailedError("no space left on device"))
_UNFORESEEN = Failure("exception", lambda: MemoryError("between commit and application"))

FAILURES: Final[Mapping[str, tuple[Failure, ...]]] = {
    "init_transactions": (_LATE,),
    "init_transactions.done": (_LATE,),
    "produce": (_QUEUE_IS_FULL,),
    "send": (_TO_ABORT, FENCED),
    "send_offsets_to_transaction": (_LATE, _TO_ABORT, FENCED, _SHARING_OUT),
    "send_offsets_to_transaction.done": (_LATE, _TO_ABORT),
    "commit_transaction": (_LATE, _TO_ABORT, FENCED),
    # The answer is lost, though the broker has committed.
    "commit_transaction.done": (_LATE, _LATE, FENCED),
    "abort_transaction": (_LATE, FENCED),
    "abort_transaction.done": (_LATE,),
    "committed": (_TIMED_OUT, _GONE),
    "topics": (_GONE,),
    "names": (_GONE,),
    "ends": (_GONE, _TIMED_OUT),
    "starts": (_GONE,),
    "cluster_id": (_GONE,),
    "create": (_GONE,),
    "applying": (_UNFORESEEN,),
    "store.open": (_DAMAGED,),
    "store.apply": (_FULL, _DAMAGED),
    "run.write": (_FULL,),
}
"""What each step may answer. `.done` stands after the effect, the bare name before it."""

SLOW: Final = frozenset(
    {
        "produce",
        "flush",
        "flush.done",
        "send_offsets_to_transaction",
        "commit_transaction",
        "commit_transaction.done",
        "abort_transaction",
    }
)
"""Steps that may take seconds."""
ANSWERS_AFTER_MS: Final = (0, 0, 20_000, 60_000)
"""How long answers to fetches may take; the client gives up a connection after the longest."""


class SeededChance(Chance):
    """Every free choice of a cluster, drawn at random each time."""

    def __init__(self, chance: random.Random, case: Scenario) -> None:
        self._chance = chance
        self._late_markers = case.late_markers
        self.slow_topic = ""
        """Of which the broker takes its time over a fetch."""
        self.ghosts = case.ghosts
        """How likely a copy of a request stays behind on its way."""
        self.trouble = case.trouble
        self.reported = 0
        """How many errors the clients have reported."""

    def sends_now(self) -> bool:
        return self._chance.random() < 0.3

    def fetched(self, records_max: int) -> int:
        return min(records_max, self._chance.randint(0, 8))

    def answers_after_ms(self, topic: str) -> int:
        return self._chance.choice(ANSWERS_AFTER_MS) if topic == self.slow_topic else 0

    def marker_now(self) -> bool:
        return not self._late_markers or self._chance.random() < 0.3

    def lingers(self) -> bool:
        return self._chance.random() < 0.3

    def hurries(self) -> bool:
        return self._chance.random() < 0.02

    def ghost(self) -> bool:
        return bool(self.ghosts) and self._chance.random() < self.ghosts

    def arrives_now(self) -> bool:
        return self._chance.random() < 0.03

    def shuffle(self, markers: list[Callable[[], None]]) -> None:
        self._chance.shuffle(markers)

    def message_error(self, topics: Collection[str]) -> KafkaError | None:
        del topics
        if not self.trouble or self._chance.random() >= self.trouble:
            return None
        self.reported += 1
        no_right = KafkaError.TOPIC_AUTHORIZATION_FAILED
        code = self._chance.choice((KafkaError._ALL_BROKERS_DOWN, no_right))
        return KafkaError(code, "told by the client")
