"""What is to be reconciled: routes, topics and settings, from the configuration that is served.

The same file that `ringfence serve` reads, and over it what was set over REST since.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from pipeline.config import Records, overlaid, revisions_of
from pipeline.errors import USAGE, PipelineError
from ringfence.headers import internal
from service.config.addresses import BRIDGE, AddressBook, AddressSettings, settings_of
from service.config.load import Config
from service.dedup.route import InputRoute, resolve
from service.metadata.redrive_job import DeadLetterRange, RedriveJob, RedriveJobs
from service.metadata.settings import effective_settings

_UNLIMITED: Final = 2**62

_IN_FORCE_WITHIN_MS: Final = 60_000
"""How long an instance may decide by the settings before those that were written."""


class PastSettings(NamedTuple):
    """How addresses remembered once."""

    until_ms: int
    book: AddressBook | None
    """None where nobody knows any more."""


UNKNOWN: Final = PastSettings(_UNLIMITED, None)
"""Where nothing is known of any time."""


class PastBounds(NamedTuple):
    """How an address remembered until a time: at least, and at most, so many for so long."""

    until_ms: int
    least: int
    most: int
    window_ms: int


class CacheSettings(NamedTuple):
    """How an address remembers, as far as it can be judged from outside."""

    strategy: str
    size: int
    """Of so many that were accepted last none may be accepted again."""
    window_ms: int
    """And none within this time."""
    strict: bool
    """Whether nothing is ever forgotten before."""
    silent: bool
    """Whether a duplicate may leave no trace."""
    former: tuple[PastBounds, ...] = ()
    """Where it was otherwise once."""


def earlier_of(config: Config, records: Records) -> tuple[PastSettings, ...]:
    """How addresses remembered before what was set over REST changed it, the newest first."""
    documents, newer = list(revisions_of(records)), overlaid(config, records).addresses
    found: list[PastSettings] = []
    for at, document in enumerate(documents, 1):
        before = documents[at:]
        is_known = before or document.number == 1
        book = effective_settings(config, before)[0].config.addresses if is_known else None
        if book is None or book.patterns != newer.patterns:
            found.append(PastSettings(document.time_ms + _IN_FORCE_WITHIN_MS, book))
        newer = newer if book is None else book
    return tuple(found)


def memory_of(
    book: AddressBook, address: str, earlier: Iterable[PastSettings] = (), *, bridged: bool = False
) -> CacheSettings:
    """How the cache of an address remembers, or the one for what was stamped on its way."""
    cache = BRIDGE + address if bridged else address
    now = _memory(settings_of(book, cache))
    memories = [
        (until_ms, None if book is None else _memory(settings_of(book, cache)))
        for until_ms, book in earlier
    ]
    return now._replace(
        silent=now.silent or any(memory and memory.silent for _, memory in memories),
        former=tuple(
            _former(until_ms, memory, now)
            for until_ms, memory in memories
            if memory is None or memory._replace(silent=now.silent) != now
        ),
    )


def _memory(settings: AddressSettings) -> CacheSettings:
    match settings.strategy:
        case "window":
            size, window_ms = settings.window_size, settings.window_ms
        case "sequence" | "ordered":
            size, window_ms = _UNLIMITED, _UNLIMITED
        case _:
            size, window_ms = settings.capacity, _UNLIMITED
    silent = settings.on_duplicate == "drop" or settings.dead_letter_audit
    return CacheSettings(_word(settings), size, window_ms, settings.persist_id_cache, silent)


def _former(until_ms: int, memory: CacheSettings | None, now: CacheSettings) -> PastBounds:
    if memory is None or (memory.strategy, memory.strict) != (now.strategy, now.strict):
        # What was remembered then was forgotten since.
        return PastBounds(until_ms, 0, _UNLIMITED, 0)
    return PastBounds(until_ms, memory.size, memory.size, memory.window_ms)


def _word(settings: AddressSettings) -> str:
    return "ring" if settings.strategy == "off" else settings.strategy


class RouteScope(NamedTuple):
    """What one route says of the records of its inputs."""

    topics: tuple[str, ...]
    address: str
    id: str
    scope: str


class ReconcileScope(NamedTuple):
    """What is to be reconciled."""

    group: str
    rules: tuple[RouteScope, ...]
    outputs: frozenset[str]
    letters: frozenset[str]
    book: AddressBook
    stamps: bool
    """Whether some route stamps records without an id."""
    from_the_first_fate: bool
    """Whether the group began anywhere, not at the beginning of its inputs."""
    targets: Mapping[str, frozenset[str]]
    """By input: the topics in which its records may have their fate."""
    earlier: tuple[PastSettings, ...] = ()
    redriven: tuple[DeadLetterRange, ...] = ()
    """Dead letters that redrives went over, as far as the config topic lists them."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that are decided."""
        return tuple(topic for rule in self.rules for topic in rule.topics)

    @property
    def carried(self) -> str | None:
        """The topic between the hops; None where no route has one."""
        has_hop = any(rule.scope == "address" for rule in self.rules)
        return internal(self.group, "by-address") if has_hop else None


def planned(
    config: Config,
    topics: Collection[str],
    earlier: tuple[PastSettings, ...] = (),
    redriven: tuple[DeadLetterRange, ...] = (),
) -> ReconcileScope:
    """What there is to do with the topics that exist."""
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
        earlier,
        redriven,
    )


def redriven_of(records: Records) -> tuple[DeadLetterRange, ...]:
    """The dead letters that the redrives among them went over; no two spans share any."""
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
    """The topics that exist of those that a template may name."""
    template = route.output if which == "output" else route.dead_letter
    fixed = template.constant
    return ({fixed} if fixed is not None else set(route.settings.allowed_outputs)) & set(topics)
