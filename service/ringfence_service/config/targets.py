"""Target rules: what the topics that routes write may have in common.

An output has accepted messages and nothing else, so no dead letter, reply or state of the service
may reach it, within a route or across routes. Templates are compared with what the configuration
names: a topic that only a regular expression finds is known once it exists, and `ringfence check`
compares those.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ringfence_client.headers import NAME_LENGTH_MAX, acknowledgements, internal
from ringfence_service.config.expressions import EXPRESSION_MARKER, OF_KAFKA, fits, reads
from ringfence_service.config.keys import TOPIC_SHAPE
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.possible_addresses import may_meet
from ringfence_service.config.templates import PLACEHOLDER, unmarked
from ringfence_service.config.validation import NamedRoute
from ringfence_service.errors import ConfigIssue

_TOPIC: Final = "{topic}"

_BY_ADDRESS: Final = "by-address"
INTERNAL_NAMES: Final = (_BY_ADDRESS, "config")
"""Names, behind that of the group, of the topics that have no route of their own."""

_CHANGELOG: Final = "changelog."


class _Target(NamedTuple):
    """A topic that a route may write: a name, or {topic} with an expression that finds topics."""

    text: str
    expression: str = ""

    def topic_of(self, name: str) -> str | None:
        """Return the input for which the target is this topic; None if there is none."""
        if not self.expression:
            return None
        text = re.escape(self.text).replace(re.escape(_TOPIC), "(?P<topic>.+)", 1)
        found = re.fullmatch(text.replace(re.escape(_TOPIC), "(?P=topic)"), name)
        if found is None or not fits(self.expression, found["topic"]):
            return None
        return found["topic"]


def target_problems(routes: Sequence[NamedRoute], group_id: str) -> list[ConfigIssue]:
    """Return what is wrong with the topics that the routes write, compared with each other."""
    return [
        *_read_twice(routes),
        *_mixed(routes),
        *_read_and_written(routes),
        *_replies_among_records(routes),
        *_written_state(routes, group_id),
        *_log_of_addresses(routes),
        *_too_long(routes),
    ]


def _targets(route: RouteSettings, key: str) -> Iterator[_Target]:
    """Yield the topics that the template of this key can yield."""
    template: str = getattr(route, key).replace("{address}", unmarked(route.address))
    for topic in route.inputs:
        is_expression = topic.startswith(EXPRESSION_MARKER)
        text = template if is_expression else template.replace(_TOPIC, topic)
        if set(PLACEHOLDER.findall(text)) - {"topic"}:
            parts = PLACEHOLDER.split(text)
            shape = tuple(c for i, part in enumerate(parts) for c in ([None] if i % 2 else part))
            yield from (
                _Target(name) for name in route.allowed_outputs if may_meet(shape, tuple(name))
            )
        elif _TOPIC in text:
            yield _Target(text, topic)
        elif re.fullmatch(TOPIC_SHAPE, text):
            yield _Target(text)


def _common(some: Sequence[_Target], others: Sequence[_Target], *, is_one_route: bool) -> str:
    """Return a topic, or a template, that is among both; empty if none is for certain.

    Two templates with {topic} of an expression are compared as text, and only within one route:
    different topics give different names.
    """
    for one in some:
        for other in others:
            if one.expression and other.expression:
                is_same = is_one_route and one == other
            elif one.expression or other.expression:
                name = other.text if one.expression else one.text
                is_same = (one.topic_of(name) or other.topic_of(name)) is not None
            else:
                is_same = one.text == other.text
            if is_same:
                return other.text if one.expression else one.text
    return ""


def _read_twice(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find named inputs that an earlier route reads: a topic has one route, the first."""
    for at, named in enumerate(routes):
        for topic in named.route.inputs:
            earlier = next((each for each in routes[:at] if reads(each.route.inputs, topic)), None)
            if earlier is not None and not topic.startswith(EXPRESSION_MARKER):
                what = (
                    f'{named.where}.inputs has "{topic}", which {earlier.where} reads: '
                    "only the first route of a topic reads it"
                )
                fix = "remove it from one, or write the route of a regular expression last"
                yield ConfigIssue(what, fix, (named.path("inputs"), earlier.path("inputs")))


def _mixed(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find dead-letter topics that can be an output: its consumers would receive the copies."""
    outputs = [list(_targets(named.route, "output")) for named in routes]
    for named in routes:
        letters = list(_targets(named.route, "dead_letter"))
        for other, accepted in zip(routes, outputs, strict=True):
            is_own = named is other
            topic = _common(letters, accepted, is_one_route=is_own)
            if not topic:
                continue
            if is_own and named.route.output == named.route.dead_letter:
                what = f'{named.where}.output and .dead_letter are both "{named.route.output}"'
            else:
                template = named.route.dead_letter
                can_be = "" if topic == template else f'which can be "{topic}", '
                whose = "the output of the same route" if is_own else f"an output of {other.where}"
                what = (
                    f'{named.where}.dead_letter is "{template}", {can_be}{whose}: '
                    "its consumers would receive duplicates"
                )
            fix = "use different topics for accepted and rejected messages"
            paths = (named.path("dead_letter"), other.path("output"))
            yield ConfigIssue(what, fix, paths)


def _read_and_written(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find named inputs that a route writes; regular expressions skip such topics anyway."""
    written = {topic: named for named in routes for topic in _written(named.route)}
    for named in routes:
        for topic in named.route.inputs:
            if topic in written:
                what = (
                    f'{named.where}.inputs has "{topic}", which {written[topic].where} writes: '
                    "a topic that a route writes cannot be an input"
                )
                paths = named.path("inputs"), written[topic].path()
                yield ConfigIssue(what, "remove the input or change the target", paths)


def _replies_among_records(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find outputs and dead-letter topics that a publisher could have replies written to."""
    for named in routes:
        for topic in named.route.reply_topics:
            other = next((each for each in routes if _may_write(each.route, topic)), None)
            if other is not None:
                what = (
                    f'{named.where}.reply_topics has "{topic}", which is an output or dead-letter '
                    f"topic of {other.where}"
                )
                paths = named.path("reply_topics"), other.path()
                yield ConfigIssue(what, "use a topic that has nothing but replies", paths)


def _written_state(routes: Sequence[NamedRoute], group_id: str) -> Iterator[ConfigIssue]:
    """Find targets that are internal topics; only dead letters may go to the group's own."""
    state = {acknowledgements(group_id), *(internal(group_id, name) for name in INTERNAL_NAMES)}
    letters = internal(group_id, "dead-letters")
    for named in routes:
        written = _written(named.route)
        for topic in sorted(written & OF_KAFKA):
            what = f'{named.where} writes "{topic}", which belongs to Kafka'
            yield ConfigIssue(what, "use a topic of your own", (named.path(),))
        for topic in sorted(written):
            if topic in state or topic.startswith(internal(group_id, _CHANGELOG)):
                what = f'{named.where} writes "{topic}", which is an internal topic of Ringfence'
                yield ConfigIssue(what, "use a topic of your own", (named.path(),))
        outputs = {each.text for each in _targets(named.route, "output")}
        if letters in outputs.union(named.route.reply_topics, named.route.allowed_outputs):
            what = f'{named.where} writes "{letters}", where the dead letters of all routes may go'
            yield ConfigIssue(what, "use a topic of your own", (named.path(),))


def _log_of_addresses(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find inputs whose changelog would have the name of the changelog of addresses."""
    if not any(each.route.is_repartitioned for each in routes):
        return
    for named in routes:
        if not named.route.is_repartitioned and _BY_ADDRESS in named.route.inputs:
            what = f'{named.where}.inputs has "{_BY_ADDRESS}", whose changelog is that of addresses'
            fix = "read it with a service.group_id of its own"
            yield ConfigIssue(what, fix, (named.path("inputs"),))


def _too_long(routes: Sequence[NamedRoute]) -> Iterator[ConfigIssue]:
    """Find named inputs of which a derived topic has a name that Kafka does not take."""
    for named in routes:
        for topic in named.route.inputs:
            if topic.startswith(EXPRESSION_MARKER):
                continue
            derived = [
                template.replace(_TOPIC, topic)
                for template in (named.route.output, named.route.dead_letter)
                if set(PLACEHOLDER.findall(template)) <= {"topic"}
            ]
            for name in derived:
                if len(name) > NAME_LENGTH_MAX:
                    what = (
                        f'{named.where} needs the topic "{name}", whose name has {len(name)} '
                        f"characters; Kafka takes {NAME_LENGTH_MAX}"
                    )
                    fix = f"write an output and a dead_letter of their own for {topic}"
                    yield ConfigIssue(what, fix, (named.path("inputs"),))


def _may_write(route: RouteSettings, topic: str) -> bool:
    """Whether accepted messages or dead letters of a route may go to a topic."""
    if topic in _named(route):
        return True
    found = (each for key in ("output", "dead_letter") for each in _targets(route, key))
    return any(each.topic_of(topic) is not None for each in found)


def _named(route: RouteSettings) -> set[str]:
    """Return the targets that do not depend on a record or an expression."""
    found = (each for key in ("output", "dead_letter") for each in _targets(route, key))
    return {each.text for each in found if not each.expression} | set(route.allowed_outputs)


def _written(route: RouteSettings) -> set[str]:
    """Return the topics that a route writes, as far as they do not depend on a record."""
    return _named(route) | set(route.reply_topics)
