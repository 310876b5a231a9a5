"""What must hold within a route and between routes, beyond the bounds of each key.

Templates name only what they may; a target that a publisher can steer needs a list of allowed
ones; no topic is both read and written; names are unique. All of it is known before a broker is.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import Final, NamedTuple

import re2

from service.errors import Problem
from service.sections import EXPRESSION_MARKER, TOPIC_SHAPE, RouteSettings

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_RE2: Final = re2.Options()
_RE2.log_errors = False  # it would write them to stderr
_HEADER = "header:"
_ANY_HEADER = "header:NAME"

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "address": ("topic", "key", _ANY_HEADER),
    "id": ("key", _ANY_HEADER, "sha256:value"),
    "output": ("topic", "address", _ANY_HEADER),
    "dead_letter": ("topic", "address", _ANY_HEADER),
}
_TARGETS = ("output", "dead_letter")


Pattern = tuple[str | None, ...]
"""Characters, and None for any text."""


class NamedRoute(NamedTuple):
    """A route and its full name in the file."""

    where: str
    route: RouteSettings
    names_inputs: bool = True
    """Whether the file says anything of inputs, right or wrong."""


def route_problems(routes: Sequence[NamedRoute], group_id: str) -> list[Problem]:
    """Return everything that is wrong with the routes."""
    problems = [] if routes else [_no_routes()]
    for named in routes:
        problems.extend(_inputs(named, group_id))
        problems.extend(_templates(named))
        problems.extend(_same_for_all(named))
        problems.extend(_steered(named))
        problems.extend(_mixed(named))
    problems.extend(_same_names(routes))
    problems.extend(_scopes_of_one_address(routes))
    problems.extend(_read_and_written(routes))
    return problems


def _no_routes() -> Problem:
    return Problem(
        "[[routes]] is missing, so there is nothing to read",
        'write [[routes]] with inputs = ["your-topic"], or keep the last one and pause it',
    )


def expression_fault(topic: str) -> str | None:
    """Why an input is no regular expression though it is marked as one."""
    if not topic.startswith(EXPRESSION_MARKER):
        return None
    try:
        re2.compile(topic, _RE2)
    except re2.error as error:
        return str(error.args[0], "utf-8", "replace")
    except UnicodeEncodeError:
        return "it holds half of a character"
    return None


def fits(expression: str, topic: str) -> bool:
    """Whether an expression finds a topic; one that is none, of another version's file, never."""
    return expression_fault(expression) is None and bool(re2.match(expression, topic, _RE2))


def _inputs(named: NamedRoute, group_id: str) -> Iterator[Problem]:
    where = f"{named.where}.inputs"
    if not named.names_inputs:
        yield Problem(f"{where} is missing", 'write inputs = ["your-topic"]')
    yield from topics_problems(where, named.route.inputs, group_id, "service.group_id")


def topics_problems(
    where: str, topics: Sequence[str], group_id: str, group_key: str
) -> Iterator[Problem]:
    """Yield what is wrong with topics to read: names, or one regular expression."""
    expressions = [topic for topic in topics if topic.startswith(EXPRESSION_MARKER)]
    if expressions and len(topics) > 1:
        what = f"{where} mixes a regular expression with other topics"
        yield Problem(what, "write one expression alone, or names only")
    for expression in expressions:
        fault = expression_fault(expression)
        if fault:
            what = (
                f'{where} holds "{expression}", which RE2 takes for no regular expression: {fault}'
            )
            yield Problem(what, "write it in RE2's syntax: without lookahead and backreferences")
    for topic in topics:
        if topic.startswith(f"{group_id}."):
            what = f'{where} holds "{topic}", but topics under "{group_id}." belong to Ringfence'
            yield Problem(what, f"remove it or choose another {group_key}")


def _templates(named: NamedRoute) -> Iterator[Problem]:
    for key, allowed in _ALLOWED.items():
        template: str = getattr(named.route, key)
        where = f"{named.where}.{key}"
        yield from template_problems(where, template, allowed, is_topic=key in _TARGETS)


def template_problems(
    where: str, template: str, allowed: Sequence[str], *, is_topic: bool
) -> Iterator[Problem]:
    """Yield what is wrong with a template that may hold these placeholders."""
    allowed_text = ", ".join(f"{{{placeholder}}}" for placeholder in allowed)
    what = f'{where} is "{template}"'
    text = PLACEHOLDER.sub("", template)
    for placeholder in PLACEHOLDER.findall(template):
        kind = _ANY_HEADER if re.fullmatch(r"header:.+", placeholder) else placeholder
        if kind not in allowed:
            yield Problem(f"{what}: {{{placeholder}}} is unknown", f"use {allowed_text}")
    if {"{", "}"} & set(text):
        yield Problem(f"{what}: a brace has no partner", f"close it: {allowed_text}")
    elif is_topic and text and not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", text):
        mend = "use letters, digits, dots, `_` and `-`"
        yield Problem(f"{what}: that cannot become the name of a topic", mend)


def _same_for_all(named: NamedRoute) -> Iterator[Problem]:
    template = named.route.id
    if template and not PLACEHOLDER.search(template):
        what = f'{named.where}.id is "{template}", so all records would have one id'
        yield Problem(what, "name a field of the record: {key}, {header:NAME} or {sha256:value}")


def _steered(named: NamedRoute) -> Iterator[Problem]:
    """Find targets that follow a key or a header: whoever may write an input chooses them."""
    route = named.route
    names = {key: PLACEHOLDER.findall(getattr(route, key)) for key in _ALLOWED}
    address_steered = "key" in names["address"] or _has_header(names["address"])
    for key in _TARGETS:
        by_address = address_steered and "address" in names[key]
        if (by_address or _has_header(names[key])) and not route.allowed_outputs:
            what = f'{named.where}.{key} is "{getattr(route, key)}", which a publisher can steer'
            yield Problem(what, 'list the topics it may name: allowed_outputs = ["…"]')


def _has_header(names: Sequence[str]) -> bool:
    return any(name.startswith(_HEADER) for name in names)


def _mixed(named: NamedRoute) -> Iterator[Problem]:
    route = named.route
    if route.output == route.dead_letter:
        what = f'{named.where}.output and .dead_letter are both "{route.output}"'
        yield Problem(what, "give accepted and rejected messages topics of their own")


def _same_names(routes: Sequence[NamedRoute]) -> Iterator[Problem]:
    counts = Counter(named.route.name for named in routes)
    for name, count in counts.items():
        if count > 1 and name:
            yield Problem(f'{count} routes have the name "{name}"', "give each a name of its own")


def _scopes_of_one_address(routes: Sequence[NamedRoute]) -> Iterator[Problem]:
    """Find routes that share an address and remember it in different places."""
    for one, other in combinations(routes, 2):
        if one.route.scope == other.route.scope or not _meet(one.route, other.route):
            continue
        yield Problem(
            f"{one.where} and {other.where} can yield the same address, and their scopes differ",
            "give both one scope, or addresses that differ in their text",
        )


def _meet(one: RouteSettings, other: RouteSettings) -> bool:
    """Whether some address fits both."""
    return any(may_meet(a, b) for a in _addresses(one) for b in _addresses(other))


def _addresses(route: RouteSettings) -> Iterator[Pattern]:
    """The addresses of a route as patterns: text, and None for whatever a record may bring."""
    for name in route.inputs:
        topic = "{key}" if name.startswith(EXPRESSION_MARKER) else name
        parts = PLACEHOLDER.split(route.address.replace("{topic}", topic))
        yield tuple(c for i, part in enumerate(parts) for c in ([None] if i % 2 else part))


def may_meet(one: Pattern, other: Pattern) -> bool:
    """Whether some text fits both patterns, in which None stands for any text."""

    @cache
    def meets(i: int, j: int) -> bool:
        if i == len(one) or j == len(other):
            return not any((*one[i:], *other[j:]))
        if one[i] is None:
            return meets(i + 1, j) or meets(i, j + 1)
        if other[j] is None:
            return meets(i, j + 1) or meets(i + 1, j)
        return one[i] == other[j] and meets(i + 1, j + 1)

    return meets(0, 0)


def _read_and_written(routes: Sequence[NamedRoute]) -> Iterator[Problem]:
    """Find named inputs that a route writes; an expression leaves such topics out by itself."""
    written = {topic: named.where for named in routes for topic in _written(named.route)}
    for named in routes:
        for topic in named.route.inputs:
            if topic in written:
                what = (
                    f'{named.where}.inputs holds "{topic}", which {written[topic]} writes: '
                    "a topic that a route writes is never an input"
                )
                yield Problem(what, "remove the input or change the target")


def _written(route: RouteSettings) -> set[str]:
    """Return the targets that are known before any message: those of inputs given by name."""
    targets = set(route.allowed_outputs)
    for template in (route.output, route.dead_letter):
        for topic in route.inputs:
            target = template.replace("{topic}", topic)
            if not topic.startswith(EXPRESSION_MARKER) and re.fullmatch(TOPIC_SHAPE, target):
                targets.add(target)
    return targets
