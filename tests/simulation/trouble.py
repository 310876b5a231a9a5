"""Trouble: what may go wrong at a step, and the freedoms of a cluster, drawn from the seed."""

import random
from collections.abc import Callable, Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError

from state.edit import Source
from state.store import StoreCorruptError, StoreFailedError
from tests.fakes.errors import abortable, fenced, plain, retriable
from tests.fakes.log import Chance

Failure = Callable[[], Exception]


class Crash(BaseException):
    """The process is gone: nothing may catch it, and nothing it does afterwards counts."""


def _late() -> Exception:
    return retriable(KafkaError._TIMED_OUT, "no answer in time")


def _gone() -> Exception:
    return plain(KafkaError._TRANSPORT, "the connection is gone")


def _timed_out() -> Exception:
    return plain(KafkaError._TIMED_OUT, "no answer in time")


def _to_abort() -> Exception:
    return abortable(KafkaError._TIMED_OUT, "the broker refused, abort")


def _sharing_out() -> Exception:
    return abortable(KafkaError.REBALANCE_IN_PROGRESS, "the group is sharing out")


def _damaged() -> Exception:
    return StoreCorruptError(Source("in", 0), "a bit flipped")


def _full() -> Exception:
    return StoreFailedError("no space left on device")


def _unforeseen() -> Exception:
    return MemoryError("between the commit and its application")


def _queue_is_full() -> Exception:
    return BufferError("queue full")


FAILURES: Final[Mapping[str, tuple[Failure, ...]]] = {
    "init_transactions": (_late,),
    "init_transactions.done": (_late,),
    "produce": (_queue_is_full,),
    "send": (_to_abort, fenced),
    "send_offsets_to_transaction": (_late, _to_abort, fenced, _sharing_out),
    "send_offsets_to_transaction.done": (_late, _to_abort),
    "commit_transaction": (_late, _to_abort, fenced),
    # The answer is lost, though the broker has committed.
    "commit_transaction.done": (_late, _late, fenced),
    "abort_transaction": (_late, fenced),
    "abort_transaction.done": (_late,),
    "committed": (_timed_out, _gone),
    "topics": (_gone,),
    "names": (_gone,),
    "ends": (_gone, _timed_out),
    "starts": (_gone,),
    "cluster_id": (_gone,),
    "create": (_gone,),
    "applying": (_unforeseen,),
    "store.open": (_damaged,),
    "store.apply": (_full, _damaged),
}
"""What each step may answer. `.done` stands after the effect, the bare name before it."""
_KINDS: Final[Mapping[Failure, str]] = {
    _late: "no answer",
    _gone: "no answer",
    _timed_out: "no answer",
    _queue_is_full: "no answer",
    _to_abort: "must abort",
    _sharing_out: "must abort",
    fenced: "fenced",
    _damaged: "disk",
    _full: "disk",
    _unforeseen: "exception",
}

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


def kind_of(failure: Failure) -> str:
    """Return which kind of fault a failure is."""
    return _KINDS[failure]


class SeededChance(Chance):
    """Every freedom of a cluster, drawn anew each time."""

    def __init__(
        self,
        chance: random.Random,
        *,
        late_markers: bool,
        trouble: float,
        ghosts: float = 0.0,
    ) -> None:
        """`ghosts` is how likely a copy of a request stays behind on its way."""
        self._chance = chance
        self.slow_topic = ""
        """Of which the broker takes its time over a fetch."""
        self.ghosts = ghosts
        self._late_markers = late_markers
        self.trouble = trouble

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
        code = self._chance.choice((KafkaError._ALL_BROKERS_DOWN, _NO_RIGHT))
        return KafkaError(code, "told by the client")


_NO_RIGHT = KafkaError.TOPIC_AUTHORIZATION_FAILED
