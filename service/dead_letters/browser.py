"""Dead-letter browser: reads and counts the dead letters of a group in their topics.

Every request has a consumer of its own, does a bounded amount of work, and reports how far it got.
At most a few requests read at a time.

Oldest first reads all partitions from their given offsets. Newest first reads backwards from the
ends in steps, each twice as long as the one before. Within a partition the order is always that of
the offsets; across partitions it is that of the timestamps, as far as one page reaches.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from service.clock import Clock
from service.config.load import Config
from service.dead_letters.owners import dead_letter_topics
from service.dead_letters.reader import OffsetScan, seen
from service.dedup.dead_letter import (
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    matches,
)
from service.kafka.clients import Clients
from service.queries.errors import Busy, NotPossible, Unavailable
from state.model import PartitionId

ADDRESSES_TOLD: Final = 100

OTHER: Final = "_other"

NONE: Final = "_none"

_HOUR_MS: Final = 3_600_000


class DeadLetterTally:
    """What is counted of dead letters."""

    def __init__(self) -> None:
        self._matched = self._foreign = 0
        self._reasons = Counter[str]()
        self._addresses = Counter[str]()
        self._topics = Counter[str]()
        self._hours_ms = Counter[int]()

    def add(self, view: DeadLetterView) -> None:
        """One more."""
        if view.reason is None:
            self._foreign += 1
            return
        self._matched += 1
        self._reasons[view.reason] += 1
        self._addresses[NONE if view.address is None else view.address] += 1
        self._topics[view.place.topic] += 1
        self._hours_ms[view.time_ms // _HOUR_MS * _HOUR_MS] += 1

    def counts(self, scanned: int, place: object | None) -> DeadLetterCounts:
        """All of it; of many addresses those with most."""
        addresses = dict(self._addresses.most_common(ADDRESSES_TOLD))
        others = self._matched - sum(addresses.values())
        if others:
            addresses[OTHER] = addresses.get(OTHER, 0) + others
        return DeadLetterCounts(
            scanned=scanned,
            matched=self._matched,
            foreign=self._foreign,
            by_reason=dict(self._reasons),
            by_address=addresses,
            by_topic=dict(self._topics),
            by_hour_ms=dict(self._hours_ms),
            place=place,
        )


READERS_MAX: Final = 4

PAGE_RECORDS_MAX: Final = 20_000

COUNT_RECORDS_MAX: Final = 100_000

NAMED_MAX: Final = 50
"""Letters named one by one that a count looks at."""

_PATIENCE_S: Final = 4.0

_QUESTION_S: Final = 5.0

_STEP_MIN: Final = 64

Look = Callable[[DeadLetterView], None]


class DeadLetterBrowser:
    """See the module. Blocks; safe on any thread."""

    def __init__(
        self, config: Callable[[], Config], clients: Callable[[], Clients], clock: Clock
    ) -> None:
        self._config = config
        self._clients = clients
        self._clock = clock
        self._seats = threading.BoundedSemaphore(READERS_MAX)

    def page(
        self, wanted: DeadLetterFilter, place: object | None, limit: int, *, newest: bool
    ) -> DeadLetterPage:
        """Dead letters from a place on."""
        told = None if place is None else _offsets_of(place, newest=newest)
        with self.reading() as (clients, consumer):
            log = self.log_of(wanted, clients, consumer)
            if newest:
                return self._newest(consumer, log, wanted, told, limit)
            return self._oldest(consumer, log, wanted, told, limit)

    def one(self, place: DeadLetterPosition) -> DeadLetterView | None:
        """The dead letter at a place, if there is one."""
        with self.reading() as (clients, consumer):
            topics = self.topics(clients)
            info = clients.cluster.topics([place.topic] if place.topic in topics else [])
            if not info or place.partition >= info[place.topic].partitions:
                return None
            source = PartitionId(place.topic, place.partition)
            start, end = clients.cluster.starts([source])[source], place.offset + 1
            if not start <= place.offset < clients.cluster.ends([source])[source]:
                return None
            sweep = self._sweep(consumer, {source: place.offset}, {source: end}, 1)
            found = next(iter(sweep), None)
            return None if found is None else seen(found)

    def count(
        self, wanted: DeadLetterFilter, place: object | None, look: Look | None = None
    ) -> DeadLetterCounts:
        """Count from a place on, as far as one request goes; `look` is shown what is counted."""
        told = {} if place is None else _offsets_of(place, newest=False)
        with self.reading() as (clients, consumer):
            log = self.log_of(wanted, clients, consumer)
            starts = {each: told.get(each, start) for each, (start, _) in log.items()}
            ends = {each: end for each, (_, end) in log.items()}
            sweep = self._sweep(consumer, starts, ends, COUNT_RECORDS_MAX)
            tally = DeadLetterTally()
            for message in sweep:
                view = seen(message)
                if matches(view, wanted):
                    tally.add(view)
                    if look is not None:
                        look(view)
            return tally.counts(
                sweep.scanned, None if sweep.is_done else _told("oldest", sweep.positions)
            )

    def count_named(self, places: Sequence[DeadLetterPosition], look: Look) -> DeadLetterCounts:
        """Count those that are named and there; one that is not is left out."""
        tally, found = (
            DeadLetterTally(),
            [view for view in map(self.one, places[:NAMED_MAX]) if view],
        )
        for view in found:
            tally.add(view)
            look(view)
        rest = None if len(places) <= NAMED_MAX else len(places)
        return tally.counts(len(found), rest)

    def topics(self, clients: Clients) -> tuple[str, ...]:
        """The dead-letter topics that there are."""
        config = self._config()
        return dead_letter_topics(config.routes, clients.cluster.names(), config.service.group_id)

    def log_of(
        self, wanted: DeadLetterFilter, clients: Clients, consumer: Consumer
    ) -> dict[PartitionId, tuple[int, int]]:
        """The offsets that a filter is about, by partition: from, and to below."""
        topics = self.topics(clients)
        for name in wanted.topics:
            if name not in topics:
                known = ", ".join(topics) or "none that exists"
                raise NotPossible(
                    f"{name} is no dead-letter topic of this group; they are: {known}."
                )
        infos = clients.cluster.topics(wanted.topics or topics)
        sources = [
            PartitionId(name, number)
            for name in sorted(infos)
            for number in range(infos[name].partitions)
        ]
        ends, starts = clients.cluster.ends(sources), clients.cluster.starts(sources)
        if wanted.from_ms is not None:
            starts = _from_time(consumer, wanted.from_ms, starts, ends)
        return {each: (starts[each], ends[each]) for each in sources}

    @contextmanager
    def reading(self) -> Iterator[tuple[Clients, Consumer]]:
        """A seat and a consumer; `Busy` where all are taken, `Unavailable` without a broker."""
        if not self._seats.acquire(blocking=False):
            raise Busy(f"{READERS_MAX} requests read dead letters already; ask again.", 2)
        try:
            clients = self._clients()
            consumer = clients.observer()
            try:
                yield clients, consumer
            finally:
                consumer.close()
        except KafkaException as error:
            sentence = f"The broker answered {error.args[0].name()}; ask again."
            raise Unavailable(sentence, 2) from error
        finally:
            self._seats.release()

    def _sweep(
        self,
        consumer: Consumer,
        starts: Mapping[PartitionId, int],
        ends: Mapping[PartitionId, int],
        records_max: int,
    ) -> OffsetScan:
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        return OffsetScan(
            consumer, starts, ends, records_max, lambda: self._clock.monotonic_s() > deadline_s
        )

    def _oldest(
        self,
        consumer: Consumer,
        log: Mapping[PartitionId, tuple[int, int]],
        wanted: DeadLetterFilter,
        told: Mapping[PartitionId, int] | None,
        limit: int,
    ) -> DeadLetterPage:
        starts = {each: (told or {}).get(each, start) for each, (start, _) in log.items()}
        ends = {each: end for each, (_, end) in log.items()}
        sweep = self._sweep(consumer, starts, ends, PAGE_RECORDS_MAX)
        found: list[DeadLetterView] = []
        for message in sweep:
            view = seen(message)
            if matches(view, wanted):
                found.append(view)
            if len(found) == limit:
                break
        found.sort(key=lambda view: (view.time_ms, view.place))
        place = None if sweep.is_done else _told("oldest", sweep.positions)
        return DeadLetterPage(tuple(found), sweep.scanned, place)

    def _newest(
        self,
        consumer: Consumer,
        log: Mapping[PartitionId, tuple[int, int]],
        wanted: DeadLetterFilter,
        told: Mapping[PartitionId, int] | None,
        limit: int,
    ) -> DeadLetterPage:
        """See the module; `below` is where each partition is read to, and goes down."""
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        below = {each: min((told or {}).get(each, end), end) for each, (_, end) in log.items()}
        partitions = max(1, len(log))
        # Nothing of a step counts that is not done, so a page has to be able to read all of it.
        step_max = max(1, PAGE_RECORDS_MAX // partitions)
        step = min(max(_STEP_MIN, 2 * limit // partitions), step_max)
        found: list[DeadLetterView] = []
        scanned, reached = 0, dict(below)
        while len(found) < limit and any(reached[each] > log[each][0] for each in log):
            if scanned >= PAGE_RECORDS_MAX or self._clock.monotonic_s() > deadline_s:
                break
            starts = {each: max(log[each][0], at - step) for each, at in reached.items()}
            sweep = self._sweep(consumer, starts, reached, PAGE_RECORDS_MAX)
            found += [view for view in map(seen, sweep) if matches(view, wanted)]
            scanned += sweep.scanned
            if not sweep.is_done:  # a transaction holds it up: nothing of this step counts
                found = [v for v in found if v.place.offset >= reached[_source(v)]]
                break
            reached, step = starts, 2 * step
        page = _newest_of(found, limit)
        given = {_source(view): view.place.offset for view in page}
        for each in {_source(view) for view in found}:
            if sum(_source(view) == each for view in found) > sum(_source(v) == each for v in page):
                reached[each] = given.get(each, below[each])
        is_done = all(at <= log[each][0] for each, at in reached.items())
        return DeadLetterPage(tuple(page), scanned, None if is_done else _told("newest", reached))


def _newest_of(found: Iterable[DeadLetterView], limit: int) -> list[DeadLetterView]:
    """The newest of all partitions; of each, a higher offset comes before a lower one."""
    by_source: dict[PartitionId, list[DeadLetterView]] = {}
    for view in found:
        by_source.setdefault(_source(view), []).append(view)
    for views in by_source.values():
        views.sort(key=lambda view: view.place.offset, reverse=True)
    return list(islice(merge(*by_source.values(), key=lambda view: -view.time_ms), limit))


def _source(view: DeadLetterView) -> PartitionId:
    return PartitionId(view.place.topic, view.place.partition)


def _from_time(
    consumer: Consumer,
    from_ms: int,
    starts: Mapping[PartitionId, int],
    ends: Mapping[PartitionId, int],
) -> dict[PartitionId, int]:
    """The first offsets at or after a time; where nothing is so late, the end."""
    asked = [TopicPartition(*each, from_ms) for each in starts]
    if not asked:
        return {}
    places = consumer.offsets_for_times(asked, timeout=_QUESTION_S)
    found = {PartitionId(place.topic, place.partition): place.offset for place in places}
    return {
        each: max(start, found[each]) if found.get(each, -1) >= 0 else ends[each]
        for each, start in starts.items()
    }


def _told(order: str, positions: Mapping[PartitionId, int]) -> object:
    """A place of a search, as JSON holds it."""
    by_topic: dict[str, list[list[int]]] = {}
    for (topic, partition), offset in positions.items():
        by_topic.setdefault(topic, []).append([partition, offset])
    return [order, by_topic]


def _offsets_of(place: object, *, newest: bool) -> dict[PartitionId, int]:
    """The offsets of a place; NotPossible for one that no page of this order has told."""
    match place:
        case [str(order), dict(by_topic)] if order == ("newest" if newest else "oldest"):
            with suppress(TypeError, ValueError):
                return {
                    PartitionId(topic, int(partition)): max(0, int(offset))
                    for topic, offsets in by_topic.items()
                    for partition, offset in offsets
                }
    raise NotPossible("The page token is none that a page of this order has given.")
