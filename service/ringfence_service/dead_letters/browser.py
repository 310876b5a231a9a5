"""Dead-letter browser: reads and counts the dead letters of a group in their topics.

Every request has its own consumer, does a bounded amount of work, and reports how far it got. At
most `READERS_MAX` requests read at a time.

Oldest first reads all partitions from their given offsets. Newest first reads backwards from the
ends in steps, each twice as long as the one before. Within a partition the order is always that of
the offsets; across partitions it is that of the timestamps, within one page.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.dead_letters.owners import dead_letter_topics
from ringfence_service.dead_letters.reader import OffsetScan, to_record, to_view
from ringfence_service.dedup.route import resolve
from ringfence_service.kafka.clients import Clients
from ringfence_service.queries.dead_letters import (
    Absence,
    DeadLetterCounts,
    DeadLetterFilter,
    DeadLetterPage,
    DeadLetterPosition,
    DeadLetterView,
    InputRecord,
    matches,
)
from ringfence_service.queries.errors import Busy, NotPossible, Unavailable
from ringfence_service.schemas.documents import begin_transaction
from ringfence_state.model import PartitionId

ADDRESSES_MAX: Final = 100
"""How many addresses a count names: they come from records, so there may be any number.

The others are counted together, as `_other`.
"""

OTHER: Final = "_other"

NONE: Final = "_none"

_HOUR_MS: Final = 3_600_000
"""The length of an hour, by which dead letters are counted."""


class DeadLetterTally:
    """Counts dead letters by reason, address, topic and hour."""

    def __init__(self) -> None:
        self._matched = self._foreign = 0
        self._reasons = Counter[str]()
        self._addresses = Counter[str]()
        self._topics = Counter[str]()
        self._hours_ms = Counter[int]()

    def add(self, view: DeadLetterView) -> None:
        """Count one dead letter."""
        if view.reason is None:
            self._foreign += 1
            return
        self._matched += 1
        self._reasons[view.reason] += 1
        self._addresses[NONE if view.address is None else view.address] += 1
        self._topics[view.position.topic] += 1
        self._hours_ms[view.time_ms // _HOUR_MS * _HOUR_MS] += 1

    def counts(self, scanned: int, cursor: object | None) -> DeadLetterCounts:
        """Return the counts; of many addresses only those with the most dead letters."""
        addresses = dict(self._addresses.most_common(ADDRESSES_MAX))
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
            cursor=cursor,
        )


READERS_MAX: Final = 4
"""How many requests read at a time; a further one is refused at once, and may be sent again.

Each has a consumer with threads and connections, and by default 16 MiB of queued records.
"""

PAGE_RECORDS_MAX: Final = 20_000
"""How many records the search for a page reads; the next page goes on from there.

Rare matches take few requests, and no request occupies a reader for long.
"""

COUNT_RECORDS_MAX: Final = 100_000
"""The same for a count; more than for a page, since it holds no dead letters."""

NAMED_MAX: Final = 50
"""How many individually named dead letters a count reads."""

_PATIENCE_S: Final = 4.0
"""How long a scan may read: the client of the API waits.

Less than half of `RESPONSE_S` of the command line: a page, newest first, may take it twice.
"""

_REQUEST_S: Final = 5.0
"""How long the broker may take to find offsets by time, as for a request of the admin client."""

_STEP_MIN: Final = 64
"""Smallest first step backwards in each partition: every step assigns the partitions again.

A larger one would read more than a short page needs.
"""

OnMatch = Callable[[DeadLetterView], None]


class DeadLetterBrowser:
    """Reads pages, counts and single dead letters, and their originals. Blocks; thread-safe."""

    def __init__(
        self, config: Callable[[], Config], clients: Callable[[], Clients], clock: Clock
    ) -> None:
        self._config = config
        self._clients = clients
        self._clock = clock
        self._slots = threading.BoundedSemaphore(READERS_MAX)

    def page(
        self,
        wanted: DeadLetterFilter,
        cursor: object | None,
        limit: int,
        *,
        newest: bool,
        after: DeadLetterPosition | None = None,
    ) -> DeadLetterPage:
        """Return matching dead letters from a cursor on; None starts at the first or last.

        With `after`, only those that follow this one in its partition, in the order of the page.
        """
        offsets = None if cursor is None else _offsets_of(cursor, newest=newest)
        with self.reading() as (clients, consumer):
            log = self.log_of(wanted, clients, consumer)
            if after is not None:
                log = _following(after, log, newest=newest)
            if newest:
                return self._newest(consumer, log, wanted, offsets, limit)
            return self._oldest(consumer, log, wanted, offsets, limit)

    def one(self, position: DeadLetterPosition) -> DeadLetterView | Absence:
        """Return the dead letter at a position, or why there is none."""
        with self.reading() as (clients, consumer):
            found = self._message(position, self.topics(clients), clients, consumer)
            return found if isinstance(found, Absence) else to_view(found)

    def record(self, position: DeadLetterPosition) -> InputRecord | Absence:
        """Return the record at a position of an input of the group, or why there is none."""
        config = self._config()
        with self.reading() as (clients, consumer):
            inputs = resolve(config.routes, clients.cluster.names(), config.service.group_id)
            found = self._message(position, inputs, clients, consumer)
            if isinstance(found, Absence):
                return found
            begin_transaction(monotonic())
            return to_record(found, inputs[position.topic])

    def count(
        self, wanted: DeadLetterFilter, cursor: object | None, on_match: OnMatch | None = None
    ) -> DeadLetterCounts:
        """Count matching dead letters from a cursor on, up to the limit of one request.

        `on_match` is called with each of them.
        """
        offsets = {} if cursor is None else _offsets_of(cursor, newest=False)
        with self.reading() as (clients, consumer):
            log = self.log_of(wanted, clients, consumer)
            starts = {each: offsets.get(each, start) for each, (start, _) in log.items()}
            ends = {each: end for each, (_, end) in log.items()}
            scan = self._scan(consumer, starts, ends, COUNT_RECORDS_MAX)
            tally = DeadLetterTally()
            for message in scan:
                view = to_view(message)
                if matches(view, wanted):
                    tally.add(view)
                    if on_match is not None:
                        on_match(view)
            return tally.counts(
                scan.scanned, None if scan.is_done else _cursor("oldest", scan.positions)
            )

    def count_named(
        self, places: Sequence[DeadLetterPosition], on_match: OnMatch
    ) -> DeadLetterCounts:
        """Count the named dead letters that exist, up to `NAMED_MAX` of them."""
        tally, found = (
            DeadLetterTally(),
            [v for v in map(self.one, places[:NAMED_MAX]) if not isinstance(v, Absence)],
        )
        for view in found:
            tally.add(view)
            on_match(view)
        rest = None if len(places) <= NAMED_MAX else len(places)
        return tally.counts(len(found), rest)

    def topics(self, clients: Clients) -> tuple[str, ...]:
        """Return the dead-letter topics that exist."""
        config = self._config()
        return dead_letter_topics(config.routes, clients.cluster.names(), config.service.group_id)

    def log_of(
        self, wanted: DeadLetterFilter, clients: Clients, consumer: Consumer
    ) -> dict[PartitionId, tuple[int, int]]:
        """Return the offsets that a filter covers, by partition: start, and end (exclusive)."""
        topics = self.topics(clients)
        for name in wanted.topics:
            if name not in topics:
                known = f"those are: {', '.join(topics)}" if topics else "none exists yet"
                raise NotPossible(f"{name} is not a dead-letter topic of this group; {known}.")
        infos = clients.cluster.topics(wanted.topics or topics)
        sources = [
            PartitionId(name, number)
            for name in sorted(infos)
            for number in range(infos[name].partitions)
        ]
        ends, starts = clients.cluster.ends(sources), clients.cluster.starts(sources)
        if wanted.from_ms is not None:
            starts = _from_time(consumer, wanted.from_ms, ends)
        return {each: (starts[each], ends[each]) for each in sources}

    @contextmanager
    def reading(self) -> Iterator[tuple[Clients, Consumer]]:
        """Provide clients and a consumer for one request.

        Raises Busy if `READERS_MAX` requests are reading, Unavailable if the broker fails.
        """
        if not self._slots.acquire(blocking=False):
            raise Busy(
                f"{READERS_MAX} requests are already reading dead letters, the maximum; try again.",
                2,
            )
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
            self._slots.release()

    def _message(
        self,
        position: DeadLetterPosition,
        topics: Collection[str],
        clients: Clients,
        consumer: Consumer,
    ) -> Message | Absence:
        """Return the message at a position of one of these topics, or why there is none."""
        info = clients.cluster.topics([position.topic] if position.topic in topics else [])
        if not info:
            return Absence("topic")
        if position.partition >= info[position.topic].partitions:
            return Absence("partition")
        source = PartitionId(position.topic, position.partition)
        start = clients.cluster.starts([source])[source]
        end = clients.cluster.ends([source])[source]
        if not start <= position.offset < end:
            return Absence("deleted" if position.offset < start else "end", start, end)
        scan = self._scan(consumer, {source: position.offset}, {source: position.offset + 1}, 1)
        found = next(iter(scan), None)
        if found is not None:
            return found
        return Absence("gap" if scan.is_done else "open", start, end)

    def _scan(
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
        offsets: Mapping[PartitionId, int] | None,
        limit: int,
    ) -> DeadLetterPage:
        starts = {each: (offsets or {}).get(each, start) for each, (start, _) in log.items()}
        ends = {each: end for each, (_, end) in log.items()}
        scan = self._scan(consumer, starts, ends, PAGE_RECORDS_MAX)
        found: list[DeadLetterView] = []
        for message in scan:
            view = to_view(message)
            if matches(view, wanted):
                found.append(view)
            if len(found) == limit:
                break
        found.sort(key=lambda view: (view.time_ms, view.position))
        cursor = None if scan.is_done else _cursor("oldest", scan.positions)
        return DeadLetterPage(tuple(found), scan.scanned, cursor)

    def _newest(
        self,
        consumer: Consumer,
        log: Mapping[PartitionId, tuple[int, int]],
        wanted: DeadLetterFilter,
        offsets: Mapping[PartitionId, int] | None,
        limit: int,
    ) -> DeadLetterPage:
        """Return a page, newest first, reading backwards; `below` is where each partition ends."""
        deadline_s = self._clock.monotonic_s() + _PATIENCE_S
        below = {each: min((offsets or {}).get(each, end), end) for each, (_, end) in log.items()}
        partitions = max(1, len(log))
        # An incomplete step does not count, so one page must be able to read a whole step.
        step_max = max(1, PAGE_RECORDS_MAX // partitions)
        step = min(max(_STEP_MIN, 2 * limit // partitions), step_max)
        found: list[DeadLetterView] = []
        scanned, reached = 0, dict(below)
        while len(found) < limit and any(reached[each] > log[each][0] for each in log):
            if scanned >= PAGE_RECORDS_MAX or self._clock.monotonic_s() > deadline_s:
                break
            starts = {each: max(log[each][0], at - step) for each, at in reached.items()}
            scan = self._scan(consumer, starts, reached, PAGE_RECORDS_MAX)
            found += [view for view in map(to_view, scan) if matches(view, wanted)]
            scanned += scan.scanned
            if not scan.is_done:  # an open transaction blocks it: this step does not count
                found = [v for v in found if v.position.offset >= reached[_source(v)]]
                break
            reached, step = starts, 2 * step
        page = _newest_of(found, limit)
        given = {_source(view): view.position.offset for view in page}
        for each in {_source(view) for view in found}:
            if sum(_source(view) == each for view in found) > sum(_source(v) == each for v in page):
                reached[each] = given.get(each, below[each])
        is_done = all(at <= log[each][0] for each, at in reached.items())
        return DeadLetterPage(tuple(page), scanned, None if is_done else _cursor("newest", reached))


def _newest_of(found: Iterable[DeadLetterView], limit: int) -> list[DeadLetterView]:
    """Return the newest of all partitions; within each, higher offsets come first."""
    by_source: dict[PartitionId, list[DeadLetterView]] = {}
    for view in found:
        by_source.setdefault(_source(view), []).append(view)
    for views in by_source.values():
        views.sort(key=lambda view: view.position.offset, reverse=True)
    return list(islice(merge(*by_source.values(), key=lambda view: -view.time_ms), limit))


def _following(
    position: DeadLetterPosition, log: Mapping[PartitionId, tuple[int, int]], *, newest: bool
) -> dict[PartitionId, tuple[int, int]]:
    """Return the offsets beyond a dead letter in its partition: below it, or above it."""
    source = PartitionId(position.topic, position.partition)
    if source not in log:
        return {}
    start, end = log[source]
    if newest:
        return {source: (start, max(start, min(end, position.offset)))}
    return {source: (min(end, max(start, position.offset + 1)), end)}


def _source(view: DeadLetterView) -> PartitionId:
    return PartitionId(view.position.topic, view.position.partition)


def _from_time(
    consumer: Consumer, from_ms: int, ends: Mapping[PartitionId, int]
) -> dict[PartitionId, int]:
    """Return the first offsets at or after a time; the end if all records are older."""
    times = [TopicPartition(*each, from_ms) for each in ends]
    if not times:
        return {}
    offsets = consumer.offsets_for_times(times, timeout=_REQUEST_S)
    found = {PartitionId(each.topic, each.partition): each.offset for each in offsets}
    return {each: found[each] if found[each] >= 0 else end for each, end in ends.items()}


def _cursor(order: str, positions: Mapping[PartitionId, int]) -> object:
    """Return the cursor of a search, as a JSON value."""
    by_topic: dict[str, list[list[int]]] = {}
    for (topic, partition), offset in positions.items():
        by_topic.setdefault(topic, []).append([partition, offset])
    return [order, by_topic]


def _offsets_of(cursor: object, *, newest: bool) -> dict[PartitionId, int]:
    """Return the offsets in a cursor; raise NotPossible if it is not of a page in this order."""
    match cursor:
        case [str(order), dict(by_topic)] if order == ("newest" if newest else "oldest"):
            with suppress(TypeError, ValueError):
                return {
                    PartitionId(topic, int(partition)): max(0, int(offset))
                    for topic, offsets in by_topic.items()
                    for partition, offset in offsets
                }
    raise NotPossible("The page token is not one of this sort order; start without one.")
