"""Slots: the grouping keys of deciding partitions, which spread them evenly over Spark's tasks.

Spark gives a group to the task `pmod(hash(key), tasks)`. With topic and number as the key, twelve
partitions on twelve tasks would leave four tasks idle and give another four times its share. A slot
is a long: its low word is the index of the partition among those of all topics, and its high word
is chosen so that the hash is the number of the partition within its topic. So partition after
partition of a topic goes to task after task, whatever the number of tasks, and each topic begins
one task after the topic before it. Spark's hash is Murmur3 with the seed 42, each step of which can
be undone.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

from ringfence_state.model import PartitionId

SLOT: Final = "slot"

SPREAD_MAX: Final = 4_096
"""Partitions with an index from this on have slots too, with any hash."""

_WORD: Final = 1 << 32
_SEED: Final = 42
_LENGTH: Final = 8
"""Bytes of a long; the hash takes it in."""


class Slots:
    """The slots of the deciding partitions of these topics, now and when topics get more."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def index(self, topic: Column, partition: Column) -> Column:
        """Return the index of a partition of these topics; its number may be -1."""
        ordinal = sf.array_position(sf.array(*map(sf.lit, self._topics)), topic) - 1
        return (partition.cast("bigint") + 1) * len(self._topics) + ordinal

    def slot(self, index: Column) -> Column:
        """Return the slot of the deciding partition with this index."""
        return _slot(index, _high_words(len(self._topics)))

    def ranked(self, slot: Column, ranks: Mapping[int, int]) -> Column:
        """Return a slot of the same partition with its rank, which is given by index, as its hash.

        A partition without a rank, or with an index from `SPREAD_MAX` on, has any hash.
        """
        if not ranks:
            return slot
        end = min(max(ranks) + 1, SPREAD_MAX)
        words = [_high_word(each, ranks.get(each, each)) for each in range(end)]
        return _slot(_index(slot), _listed(words))

    def unranked(self, slot: Column) -> Column:
        """Return the slot that the partition of a slot has without a rank."""
        return self.slot(_index(slot))

    def index_of(self, partition: PartitionId) -> int:
        """Return the index of a partition."""
        return (partition.partition + 1) * len(self._topics) + self._topics.index(partition.topic)

    def partition(self, index: int) -> PartitionId:
        """Return the partition with this index, or with this slot."""
        partition, ordinal = divmod(index % _WORD, len(self._topics))
        return PartitionId(self._topics[ordinal], partition - 1)

    def columns(self, index: Column) -> tuple[Column, Column]:
        """Return the topic and the number of the partition with this index, or with this slot."""
        low = _index(index)
        count = len(self._topics)
        topic = sf.get(sf.array(*map(sf.lit, self._topics)), (low % count).cast("int"))
        return topic, (sf.floor(low / count) - 1).cast("int")


def _index(slot: Column) -> Column:
    return slot.bitwiseAND(sf.lit(_WORD - 1))


def _slot(index: Column, high_words: str) -> Column:
    # A constant, of which an array of as many literals would be built far more slowly.
    words = sf.split(sf.lit(high_words), ",").cast("array<bigint>")
    high = sf.coalesce(sf.get(words, index), sf.lit(0))  # `get` is null beyond the end
    return sf.shiftleft(high, 32).bitwiseOR(index)


@cache
def _high_words(topics: int) -> str:
    """Return the high word for each index among so many topics, as integers between commas."""
    return _listed([_high_word(index, sum(divmod(index, topics))) for index in range(SPREAD_MAX)])


def _listed(words: Sequence[int]) -> str:
    return ",".join(str(word - _WORD if word >= _WORD >> 1 else word) for word in words)


def _high_word(low: int, hashed: int) -> int:
    """Return the word with which the hash of the long that ends in `low` is `hashed`."""
    after_low = _folded(_SEED, _mixed(low))
    end = _shift_undone(hashed, 16)
    end = _shift_undone(end * pow(0xC2B2AE35, -1, _WORD) % _WORD, 13)
    end = _shift_undone(end * pow(0x85EBCA6B, -1, _WORD) % _WORD, 16) ^ _LENGTH
    folded = (end - 0xE6546B64) * pow(5, -1, _WORD) % _WORD
    mixed = _rotated(folded, 32 - 13) ^ after_low
    rotated = mixed * pow(0x1B873593, -1, _WORD) % _WORD
    return _rotated(rotated, 32 - 15) * pow(0xCC9E2D51, -1, _WORD) % _WORD


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 % _WORD, 15) * 0x1B873593 % _WORD


def _folded(hashed: int, mixed: int) -> int:
    return (_rotated(hashed ^ mixed, 13) * 5 + 0xE6546B64) % _WORD


def _rotated(word: int, bits: int) -> int:
    """Return a word rotated left."""
    return (word << bits | word >> (32 - bits)) % _WORD


def _shift_undone(mixed: int, bits: int) -> int:
    """Return x for x ^ (x >> bits)."""
    return mixed ^ mixed >> bits ^ mixed >> 2 * bits
