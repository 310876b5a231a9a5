"""Warnings about topics that routes write: what they refuse although their inputs take it.

A record that is refused is a dead letter, and nothing is lost, so none of this is a problem.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from service.dedup.route import InputRoute, Template
from service.kafka.model import EFFECTIVE_TIME_LIMITS, RECORD_LIMIT, TopicInfo

_KEYS: Final = "has cleanup.policy"


def target_warnings(
    routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo], fallback: str
) -> Iterator[str]:
    """Yield a sentence for each that is found; `topics` has those of all inputs and targets."""
    for name, route in routes.items():
        has = topics.get(name)
        for output in _names(route.output, route):
            if has is not None and output in topics:
                yield from _output_warnings(name, has, output, topics[output])
        for letters in _names(route.dead_letter, route):
            if letters in topics and topics[letters].needs_key:
                yield (
                    f'the dead-letter topic "{letters}" {_KEYS} {topics[letters].cleanup_policy}: '
                    f"a dead letter replaces the earlier ones of its key, and one without a key "
                    f"goes to {fallback}; set it to delete"
                )


def _names(template: Template, route: InputRoute) -> Sequence[str]:
    """Return the topics that a template can yield."""
    constant = template.constant
    return route.settings.allowed_outputs if constant is None else (constant,)


def _output_warnings(name: str, has: TopicInfo, output: str, takes: TopicInfo) -> Iterator[str]:
    """Yield what an output refuses although the input takes it."""
    if takes.needs_key and not has.needs_key:
        yield (
            f'the output "{output}" {_KEYS} {takes.cleanup_policy}, so a message of "{name}" '
            "without a key is dead-lettered as missing-key; give all messages keys, or set it to "
            "delete"
        )
    if takes.record_bytes_max < has.record_bytes_max:
        yield _stricter(RECORD_LIMIT, name, has.record_bytes_max, output, takes.record_bytes_max)
    for setting in EFFECTIVE_TIME_LIMITS:
        before, after = has.time_limit(setting), takes.time_limit(setting)
        if after < before and has.timestamp_type == "CreateTime":
            yield _stricter(setting, name, before, output, after)


def _stricter(setting: str, name: str, has: int, output: str, takes: int) -> str:
    return (
        f'{setting} is {has} for the input "{name}" and {takes} for its output "{output}", so a '
        f"message beyond that is dead-lettered; raise it to {has}"
    )
