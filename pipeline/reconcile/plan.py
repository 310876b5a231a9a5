"""What is to be reconciled: routes, topics and settings, from the configuration that is served.

The same file that `ringfence serve` reads, and over it what was set over REST since.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pipeline.errors import USAGE, PipelineError
from pipeline.reconcile.settings import Earlier
from pipeline.served import Records
from ringfence.topics import internal
from service.addresses import AddressBook
from service.config import Config
from service.redrive.job import Job, Jobs, Span
from service.route import InputRoute, resolve


class Rule(NamedTuple):
    """What one route says of the records of its inputs."""

    topics: tuple[str, ...]
    address: str
    id: str
    scope: str


class Plan(NamedTuple):
    """What is to be reconciled."""

    group: str
    rules: tuple[Rule, ...]
    outputs: frozenset[str]
    letters: frozenset[str]
    book: AddressBook
    stamps: bool
    """Whether some route stamps records without an id."""
    from_the_first_fate: bool
    """Whether the group began anywhere, not at the beginning of its inputs."""
    targets: Mapping[str, frozenset[str]]
    """By input: the topics in which its records may have their fate."""
    earlier: tuple[Earlier, ...] = ()
    redriven: tuple[Span, ...] = ()
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
    earlier: tuple[Earlier, ...] = (),
    redriven: tuple[Span, ...] = (),
) -> Plan:
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
    return Plan(
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


def redriven_of(records: Records) -> tuple[Span, ...]:
    """The dead letters that the redrives among them went over; no two spans share any."""
    jobs = Jobs()
    for key, value, _ in records:
        jobs.take(key, value)
    spans: list[Span] = []
    for span in sorted(span for job in jobs.by_id.values() for span in _spans(job)):
        if spans and spans[-1][:2] == span[:2] and span.start <= spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(spans[-1].end, span.end))
        else:
            spans.append(span)
    return tuple(spans)


def _spans(job: Job) -> Iterable[Span]:
    named = job.order.letters
    return (Span(*letter, letter.offset + 1) for letter in named) if named else job.spans


def _rules(routes: Mapping[str, InputRoute]) -> Iterable[Rule]:
    by_route: dict[str, list[InputRoute]] = {}
    for route in routes.values():
        by_route.setdefault(route.settings.name, []).append(route)
    for found in by_route.values():
        settings = found[0].settings
        topics = tuple(route.topic for route in found)
        yield Rule(topics, settings.address, settings.id, settings.scope)


def _written(route: InputRoute, topics: Collection[str], which: str) -> set[str]:
    """The topics that exist of those that a template may name."""
    template = route.output if which == "output" else route.dead_letter
    fixed = template.constant
    return ({fixed} if fixed is not None else set(route.settings.allowed_outputs)) & set(topics)
