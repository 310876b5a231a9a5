"""History: what producers sent, what was acknowledged, and what readers polled, as values.

A record is identified by its mark, which is unique and stays with it wherever it goes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Log(NamedTuple):
    """A topic and one of its partitions."""

    topic: str
    partition: int


class Sent(NamedTuple):
    """One send, in the order of its producer; without an offset it was never acknowledged."""

    producer: str
    log: Log
    mark: bytes
    offset: int | None


class Polled(NamedTuple):
    """One record that a reader was given, in the order in which it was."""

    reader: str
    log: Log
    offset: int
    mark: bytes


class History(NamedTuple):
    """Everything that was seen from outside."""

    sends: tuple[Sent, ...]
    polls: tuple[Polled, ...]
    committed: Mapping[Log, int]
    """How far each input was decided at the end."""
    fates: frozenset[str]
    """The topics in which inputs end: outputs and dead letters."""
    reads_all: str
    """The reader that has read everything, after the end."""

    def sends_by_producer(self) -> Iterable[list[Sent]]:
        """The sends of one producer to one log."""
        found: dict[tuple[str, Log], list[Sent]] = defaultdict(list)
        for sent in self.sends:
            found[sent.producer, sent.log].append(sent)
        return found.values()

    def polls_by_reader(self) -> Iterable[list[Polled]]:
        """What one reader was given of one log."""
        found: dict[tuple[str, Log], list[Polled]] = defaultdict(list)
        for polled in self.polls:
            found[polled.reader, polled.log].append(polled)
        return found.values()

    def is_fate(self, polled: Polled) -> bool:
        """Whether a poll shows where an input has ended."""
        return polled.log.topic in self.fates
