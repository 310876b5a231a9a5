"""Warnings about topics: what outputs and dead-letter topics refuse, change or lose of their input.

A record that is refused is a dead letter, and a topic may be stricter on purpose, so none of this
is a problem. Neither is a setting that the broker does not report.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.route import InputRoute
from ringfence_service.formatting import plural
from ringfence_service.kafka.model import (
    EFFECTIVE_TIME_LIMITS,
    RECORD_LIMIT,
    RETENTION,
    UNCHECKED,
    UNLIMITED,
    TopicInfo,
)

_KEYS: Final = "has cleanup.policy"
_NAMED_MAX: Final = 3
"""How many topics a warning names before it counts the rest, so that it stays one sentence."""


def unreported_warnings(topics: Mapping[str, TopicInfo]) -> Iterator[str]:
    """Yield a sentence for each setting that the broker does not report of some topics."""
    for settings, unchecked in UNCHECKED.items():
        without = [name for name in sorted(topics) if not any(map(topics[name].reports, settings))]
        if without:
            more = len(without) - _NAMED_MAX
            others = f" and {more} more" if more > 0 else ""
            yield (
                f"the broker does not report {' or '.join(settings)} of "
                f"{plural(len(without), 'topic')} ({', '.join(without[:_NAMED_MAX])}{others}), so "
                f"Ringfence cannot check {unchecked}; see to it yourself"
            )


class _Pair(NamedTuple):
    """An input, and a topic that its route writes."""

    input: str
    has: TopicInfo
    target: str
    takes: TopicInfo


def target_warnings(
    routes: Mapping[str, InputRoute], topics: Mapping[str, TopicInfo], fallback: str
) -> Iterator[str]:
    """Yield a sentence for each that is found; `topics` has those of all inputs and targets."""
    inputs_of: dict[str, list[str]] = {}
    for name, route in routes.items():
        if name not in topics:
            continue
        for output in route.names(route.output):
            if output in topics:
                inputs_of.setdefault(output, []).append(name)
                yield from _output_warnings(_Pair(name, topics[name], output, topics[output]))
                if topics[output].needs_key:
                    yield from _tombstone_warnings(route, output)
        for letters in route.names(route.dead_letter):
            if letters in topics:
                pair = _Pair(name, topics[name], letters, topics[letters])
                yield from _dead_letter_warnings(pair, fallback)
    for output, inputs in inputs_of.items():
        if len(inputs) > 1 and topics[output].needs_key:
            yield (
                f'the output "{output}" {_KEYS} {topics[output].cleanup_policy} and gets the '
                f"messages of {plural(len(inputs), 'input')}, so messages of different inputs with "
                "one key replace each other; give each input an output of its own, or set it to "
                "delete"
            )


def _output_warnings(pair: _Pair) -> Iterator[str]:
    """Yield what an output refuses, changes or deletes of what its input takes and keeps."""
    name, has, output, takes = pair
    if takes.needs_key and not has.needs_key:
        yield (
            f'the output "{output}" {_KEYS} {takes.cleanup_policy}, so a message replaces the '
            f'earlier ones of its key, and one of "{name}" without a key is dead-lettered as '
            "missing-key; give all messages keys of their own, or set it to delete"
        )
    if not takes.has_own_times:
        yield (
            f'the output "{output}" has message.timestamp.type {takes.timestamp_type}, so the '
            f'timestamp of each message of "{name}" becomes the time at which it is written; set '
            "it to CreateTime"
        )
    yield from _size_warnings(pair, "output", "is dead-lettered as too-large")
    for setting in EFFECTIVE_TIME_LIMITS:
        before, after = has.time_limit(setting), takes.time_limit(setting)
        if after < before and has.has_own_times:
            yield _stricter(setting, before, after, pair, "output", "is dead-lettered")
    yield from _retention_warnings(pair, "output", "are deleted from it while the input has them")
    if takes.partitions != has.partitions:
        yield (
            f'the input "{name}" has {plural(has.partitions, "partition")} and its output '
            f'"{output}" {takes.partitions}, so a message goes to the partition of its key by '
            "Kafka's default partitioner, or without a key to its own number modulo that count: "
            "partitions do not correspond, and where the publisher chose them, messages of one "
            "partition lose their order; give both equally many"
        )


def _tombstone_warnings(route: InputRoute, output: str) -> Iterator[str]:
    """Yield a sentence if copies of tombstones pass to a compacted output."""
    identifier, settings = identifier_of(route.settings.id), route.settings
    if identifier is not None and identifier.needs_value and settings.missing_id == "pass":
        yield (
            f'a message of "{route.topic}" without a value has no id, so it passes unchecked: a '
            "copy of it that comes after its key was written again deletes that key from "
            f'"{output}", which is compacted; have its publisher send none (Debezium: '
            'tombstones.on.delete=false), or write missing_id = "dead_letter"'
        )


def _dead_letter_warnings(pair: _Pair, fallback: str) -> Iterator[str]:
    """Yield what a dead-letter topic refuses or loses.

    A dead letter has the time of its decision, and its partition does not matter.
    """
    _, has, letters, takes = pair
    if takes.needs_key:
        yield (
            f'the dead-letter topic "{letters}" {_KEYS} {takes.cleanup_policy}: a dead letter '
            "replaces the earlier ones of its key, and one without a key goes to "
            f"{fallback}; set it to delete"
        )
    yield from _size_warnings(pair, "dead-letter topic", f"goes to {fallback}")
    if has.is_deleted_from:
        yield from _retention_warnings(
            pair, "dead-letter topic", "can be neither looked at nor redriven after that"
        )


def _size_warnings(pair: _Pair, kind: str, fate: str) -> Iterator[str]:
    _, has, target, takes = pair
    if takes.record_bytes_max < has.record_bytes_max:
        yield _stricter(
            RECORD_LIMIT, has.record_bytes_max, takes.record_bytes_max, pair, kind, fate
        )
    if has.compresses and not takes.compresses:
        yield (
            f'the {kind} "{target}" has compression.type {takes.compression}, so a message that '
            f'its publisher had to compress to fit "{pair.input}" {fate}; set it to producer'
        )


def _retention_warnings(pair: _Pair, kind: str, fate: str) -> Iterator[str]:
    """Yield a shorter retention; unlimited is also what a topic has that is only compacted."""
    for setting in RETENTION:
        before, after = pair.has.kept(setting), pair.takes.kept(setting)
        if before is None or after is None or after >= before:
            continue
        has = f"{before}" if before < UNLIMITED else "unlimited"
        to = f"{before}" if before < UNLIMITED else "-1"
        yield (
            f'{setting} is {has} for the input "{pair.input}" and {after} for its {kind} '
            f'"{pair.target}", so messages beyond that {fate}; raise it to {to}'
        )


def _stricter(setting: str, has: int, takes: int, pair: _Pair, kind: str, fate: str) -> str:
    return (
        f'{setting} is {has} for the input "{pair.input}" and {takes} for its {kind} '
        f'"{pair.target}", so a message beyond that {fate}; raise it to {has}'
    )


def compression_warnings(codec: str | None) -> Iterator[str]:
    """Yield a sentence if the codec of `[kafka.producer]` packs less than publishers may."""
    if codec is not None and codec != "zstd":
        yield (
            f'kafka.producer."compression.type" is {codec}, so a message that fits an input only '
            "with a better compression of its publisher is dead-lettered as too-large; remove it, "
            "and Ringfence compresses what has to be compressed, or set it to zstd"
        )
