"""Reconciliation scope: the routes, topics and settings to reconcile.

They come from the file that `ringfence serve` reads, overlaid by the settings made over REST.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ringfence_client.headers import internal
from ringfence_pipeline.config import Records, overlaid, revisions_of
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_service.config.addresses import (
    BRIDGE,
    AddressBook,
    AddressSettings,
    home_of,
    settings_of,
)
from ringfence_service.config.model import Config
from ringfence_service.dedup.route import InputRoute, resolve
from ringfence_service.metadata.overlay import effective_settings
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob, RedriveJobs
from ringfence_state.strategies.registry import STRATEGIES

_UNLIMITED: Final = 2**62

_EFFECTIVE_WITHIN_MS: Final = 60_000
"""How long an instance may still use the settings before a change."""


class PastSettings(NamedTuple):
    """The address settings up to a time."""

    until_ms: int
    book: AddressBook | None
    """None if they are no longer known."""


UNKNOWN: Final = PastSettings(_UNLIMITED, None)
"""The settings at all times are unknown."""


class PastBounds(NamedTuple):
    """Bounds of what an address remembered until a time: number of ids, and window."""

    until_ms: int
    least: int
    most: int
    window_ms: int


class CacheSettings(NamedTuple):
    """The settings of an address that affect what can be checked from outside."""

    strategy: str
    size: int
    """None of this many last accepted ids may be accepted again."""
    window_ms: int
    """No id may be accepted again within this time."""
    strict: bool
    """Whether ids are never forgotten earlier."""
    silent: bool
    """Whether a duplicate may leave no trace."""
    former: tuple[PastBounds, ...] = ()
    """Bounds of earlier settings that differ."""


def earlier_of(config: Config, records: Records) -> tuple[PastSettings, ...]:
    """Return the address settings before each change made over REST, newest first."""
    documents, newer = list(revisions_of(records)), overlaid(config, records).addresses
    found: list[PastSettings] = []
    for at, document in enumerate(documents, 1):
        before = documents[at:]
        is_known = before or document.number == 1
        book = effective_settings(config, before)[0].config.addresses if is_known else None
        if book is None or book.patterns != newer.patterns:
            found.append(PastSettings(document.time_ms + _EFFECTIVE_WITHIN_MS, book))
        newer = newer if book is None else book
    return tuple(found)


def memory_of(
    book: AddressBook, address: str, earlier: Iterable[PastSettings] = (), *, bridged: bool = False
) -> CacheSettings:
    """Return the settings of an address, or with `bridged` of its cache for stamped ids."""
    cache = BRIDGE + address if bridged else address
    now = _memory(book, cache)
    memories = [
        (until_ms, None if book is None else _memory(book, cache)) for until_ms, book in earlier
    ]
    return now._replace(
        silent=now.silent or any(memory and memory.silent for _, memory in memories),
        former=tuple(
            _former(until_ms, memory, now)
            for until_ms, memory in memories
            if memory is None or memory._replace(silent=now.silent) != now
        ),
    )


def _memory(book: AddressBook, cache: str) -> CacheSettings:
    settings, home = settings_of(book, cache), settings_of(book, home_of(cache))
    strategy = settings.remembered_by
    size = settings.share_room if strategy.holds_ids else _UNLIMITED
    window_ms = getattr(settings, strategy.time_key) if strategy.time_key else _UNLIMITED
    if home.remembered_by.holds_ids:  # else it never expires
        # While an id is younger than that, its address is not idle.
        window_ms = min(window_ms, home.address_idle_ms or _UNLIMITED)
    silent = settings.on_duplicate == "drop" or settings.dead_letter_audit
    return CacheSettings(_word(settings), size, window_ms, settings.persist_id_cache, silent)


def _former(until_ms: int, memory: CacheSettings | None, now: CacheSettings) -> PastBounds:
    if memory is None or (memory.strategy, memory.strict) != (now.strategy, now.strict):
        # The change of settings has discarded the ids of that time.
        return PastBounds(until_ms, 0, _UNLIMITED, 0)
    return PastBounds(until_ms, memory.size, memory.size, memory.window_ms)


def _word(settings: AddressSettings) -> str:
    """Return the strategy; the first of those that write the same keys."""
    kind = settings.remembered_by.kind
    return next(name for name, each in STRATEGIES.items() if each.kind == kind)


class RouteScope(NamedTuple):
    """The settings of a route that affect the fates of its records."""

    topics: tuple[str, ...]
    address: str
    id: str
    scope: str


class ReconcileScope(NamedTuple):
    """The group, routes and topics to reconcile."""

    group: str
    rules: tuple[RouteScope, ...]
    outputs: frozenset[str]
    letters: frozenset[str]
    book: AddressBook
    stamps: bool
    """Whether a route stamps records without an id."""
    from_the_first_fate: bool
    """Whether the group may have started after the beginning of its inputs."""
    targets: Mapping[str, frozenset[str]]
    """By input: the topics that may have the fates of its records."""
    by_address_partitions: int
    earlier: tuple[PastSettings, ...] = ()
    redriven: tuple[DeadLetterRange, ...] = ()
    """Dead letters covered by redrives, as far as the metadata topic lists them."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics."""
        return tuple(topic for rule in self.rules for topic in rule.topics)

    @property
    def carried(self) -> str | None:
        """The topic by-address between the stages; None if no route needs it."""
        has_hop = any(rule.scope != "partition" for rule in self.rules)
        return internal(self.group, "by-address") if has_hop else None


def planned(
    config: Config,
    topics: Collection[str],
    earlier: tuple[PastSettings, ...] = (),
    redriven: tuple[DeadLetterRange, ...] = (),
) -> ReconcileScope:
    """Return the scope for the topics that exist; raise PipelineError if no input exists."""
    group = config.service.group_id
    routes = resolve(config.routes, topics, group)
    if not routes:
        raise PipelineError(
            f"no topic on the broker is an input of a route of group {group}: check the routes' "
            "inputs, and that this is the right broker",
            exit_code=USAGE,
        )
    outputs = {name: _written(route, topics, "output") for name, route in routes.items()}
    fallback = {internal(group, "dead-letters")} & set(topics)
    letters = {
        name: _written(route, topics, "dead_letter") | fallback for name, route in routes.items()
    }
    return ReconcileScope(
        group,
        tuple(_rules(routes)),
        frozenset().union(*outputs.values()),
        frozenset().union(*letters.values()),
        config.addresses,
        any(route.settings.missing_id == "stamp" for route in routes.values()),
        config.service.on_missing_offset == "latest",
        {name: frozenset(outputs[name] | letters[name]) for name in routes},
        config.service.by_address_partitions,
        earlier,
        redriven,
    )


def redriven_of(records: Records) -> tuple[DeadLetterRange, ...]:
    """Return the dead letters covered by the redrives in these records, as disjoint spans."""
    jobs = RedriveJobs()
    for key, value, _ in records:
        jobs.take(key, value)
    spans: list[DeadLetterRange] = []
    for span in sorted(span for job in jobs.by_id.values() for span in _spans(job)):
        if spans and spans[-1][:2] == span[:2] and span.start <= spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(spans[-1].end, span.end))
        else:
            spans.append(span)
    return tuple(spans)


def is_redriving(records: Records) -> bool:
    """Return whether a redrive in these records has not ended."""
    jobs = RedriveJobs()
    for key, value, _ in records:
        jobs.take(key, value)
    return any(job.is_running for job in jobs.by_id.values())


def _spans(job: RedriveJob) -> Iterable[DeadLetterRange]:
    named = job.order.letters
    return (DeadLetterRange(*letter, letter.offset + 1) for letter in named) if named else job.spans


def _rules(routes: Mapping[str, InputRoute]) -> Iterable[RouteScope]:
    by_route: dict[str, list[InputRoute]] = {}
    for route in routes.values():
        by_route.setdefault(route.settings.name, []).append(route)
    for found in by_route.values():
        settings = found[0].settings
        topics = tuple(route.topic for route in found)
        yield RouteScope(topics, settings.address, settings.id, settings.scope)


def _written(route: InputRoute, topics: Collection[str], which: str) -> set[str]:
    """Return the existing topics that a template may name."""
    template = route.output if which == "output" else route.dead_letter
    fixed = template.constant
    return ({fixed} if fixed is not None else set(route.settings.allowed_outputs)) & set(topics)
