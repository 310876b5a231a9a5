"""ID import: the steps of `ringfence adopt`: find the route, check, read, upload, report."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
from confluent_kafka import Consumer, KafkaException, TopicPartition

from service.clock import SystemClock
from service.config.load import Config, RouteSettings
from service.config.tasks import Hop, Task
from service.dedup.route import InputRoute, reads, resolve
from service.errors import ExitCode, ExitError
from service.import_ids.decided import wait_until_decided
from service.import_ids.reader import OffsetRange, TopicReader
from service.import_ids.source import IdLine, IdSource
from service.import_ids.uploader import Uploader
from service.kafka.admin import TopicInfo
from service.kafka.clients import KafkaClients
from service.kafka.errors import fault_of
from service.kafka.topics import by_address
from service.metadata.effective_config import in_effect
from state.model import PartitionId

_QUESTION_S: Final = 30.0
_TOLD_MAX: Final = 20


class ImportRequest(NamedTuple):
    """What is adopted, and where to."""

    topic: str | None
    file: Path | None
    input: str | None
    address: str | None
    since_ms: int | None
    """Records before that time of the epoch are left out."""
    reason: str
    dry_run: bool


def adopt(
    file: Config, wanted: ImportRequest, client: httpx2.Client, say: Callable[[str], None]
) -> None:
    """Have the service that `client` asks know the past; ExitError with what to do about it."""
    if wanted.file is not None:
        sender = Uploader(client, _query(wanted, wanted.input))
        for line in _lines_of_file(wanted.file, wanted.address):
            sender.add(line)
        sender.flush()
        _tell(sender, {}, say)
        return
    try:
        _adopt_topic(file, wanted, client, say)
    except KafkaException as error:
        sentence = f"The broker answered {fault_of(error.args[0]).cause}; adopt again."
        raise ExitError(ExitCode.BROKER, sentence) from error


def _adopt_topic(
    file: Config, wanted: ImportRequest, client: httpx2.Client, say: Callable[[str], None]
) -> None:
    topic, clients = wanted.topic or "", KafkaClients(file)
    config = in_effect(file, clients, SystemClock()).config
    inputs = resolve(config.routes, clients.cluster.names(), config.service.group_id)
    route = route_of(config.routes, inputs, topic, wanted.input)
    past = IdSource(route, config.addresses, wanted.address)
    sender = Uploader(client, _query(wanted, route.topic))
    topics = clients.cluster.topics([topic, route.topic])
    check_topics(topic, route, topics)
    with closing(clients.observer()) as consumer:
        spans = _spans(consumer, topics[topic], topic, wanted.since_ms)
        spans = _of_the_past(config, inputs.get(topic), consumer, spans)
        for message in TopicReader(consumer, spans):
            line = past.line(message)
            if line is not None:
                sender.add(line)
    sender.flush()
    _tell(sender, past.left_out, say)


def route_of(
    routes: Sequence[RouteSettings],
    inputs: Mapping[str, InputRoute],
    topic: str,
    name: str | None,
) -> InputRoute:
    """The route by which records of a topic are read, bound to the input that they stand for.

    Without a name that is the topic itself, if it is an input, or the only one that there can be.
    `inputs` are those that exist. ExitError where the input is not known.
    """
    if name is None and topic in inputs:
        return inputs[topic]
    if name is None:
        known = [each for route in routes for each in route.inputs]
        if len(known) != 1 or known[0].startswith("^"):
            sentence = (
                f"It is not known which input the records of {topic} stand for; name the one that "
                f"their publishers will write to with --input ({', '.join(known)})."
            )
            raise ExitError(ExitCode.USAGE, sentence)
        (name,) = known
    fitting = [route for route in routes if reads(route.inputs, name)]
    if not fitting:
        sentence = f"No route reads {name}; name an input of a route with --input."
        raise ExitError(ExitCode.USAGE, sentence)
    return InputRoute.bind(fitting[0], name)


def check_topics(topic: str, route: InputRoute, topics: Mapping[str, TopicInfo]) -> None:
    """ExitError where it cannot be told which partitions the ids belong to."""
    for name in (topic, route.topic):
        if name not in topics:
            raise ExitError(ExitCode.USAGE, f"There is no topic {name}; see its name.")
    here, there = topics[topic].partitions, topics[route.topic].partitions
    if route.settings.scope == "partition" and here != there:
        sentence = (
            f"{topic} has {here} partitions and {route.topic} has {there}. With scope "
            f"partition an id counts on the partition that its record comes by, and by which of "
            f"{route.topic} a record of {topic} would have come is not known. Copy it into a "
            f"topic of {there} partitions and adopt that, or have a route of scope address."
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)


def _spans(
    consumer: Consumer, info: TopicInfo, topic: str, since_ms: int | None
) -> dict[PartitionId, OffsetRange]:
    """All that is committed by now, from the beginning or a time on."""
    places = [TopicPartition(topic, number) for number in range(info.partitions)]
    found = {}
    for place in places:
        start, end = consumer.get_watermark_offsets(place, timeout=_QUESTION_S)
        found[PartitionId(topic, place.partition)] = OffsetRange(start, end)
    if since_ms is None:
        return found
    asked = [TopicPartition(topic, place.partition, since_ms) for place in places]
    for place in consumer.offsets_for_times(asked, timeout=_QUESTION_S):
        source = PartitionId(topic, place.partition)
        span = found[source]
        found[source] = span._replace(start=place.offset if place.offset >= 0 else span.end)
    return found


def _of_the_past(
    config: Config,
    own: InputRoute | None,
    consumer: Consumer,
    spans: dict[PartitionId, OffsetRange],
) -> dict[PartitionId, OffsetRange]:
    """Of an input of the service, with its route, what it has decided; of another topic all."""
    if own is None:
        return spans
    spans = before_the_group(consumer, spans)
    if own.settings.scope == "address":
        # After the offsets: all that was passed on by then lies before the ends of now.
        deciding = KafkaClients(config, Task(hop=Hop.ADDRESSES))
        wait_until_decided(deciding, by_address(config.service.group_id), SystemClock())
    return spans


def before_the_group(
    consumer: Consumer, spans: Mapping[PartitionId, OffsetRange]
) -> dict[PartitionId, OffsetRange]:
    """Of the input itself what lies before the service's own beginning, and nothing else.

    What it has still to read would be taken for a copy of itself.
    """
    places = [TopicPartition(*source) for source in spans]
    committed = {
        PartitionId(place.topic, place.partition): place.offset
        for place in consumer.committed(places, timeout=_QUESTION_S)
    }
    unread = [source for source, offset in committed.items() if offset < 0]
    if unread:
        topic = unread[0].topic
        sentence = (
            f"The service has not begun to read {topic}, and what it will read would be taken for "
            'copies of itself. Start it with service.on_missing_offset = "latest", or with '
            '"earliest", which reads the past itself, so that there is nothing to adopt.'
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)
    return {
        source: span._replace(end=min(span.end, committed[source]))
        for source, span in spans.items()
    }


def _lines_of_file(path: Path, address: str | None) -> Iterator[IdLine]:
    if not address:
        raise ExitError(ExitCode.USAGE, "A file tells no address; name it with --address.")
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row: dict[str, Any] = json.loads(text)
            except ValueError as error:
                sentence = f"{path}, line {number}: {error}; it is to be as ids:export writes it."
                raise ExitError(ExitCode.USAGE, sentence) from error
            yield IdLine(address, row)


def _query(wanted: ImportRequest, input_: str | None) -> dict[str, str]:
    query = {"dry_run": str(wanted.dry_run).lower(), "reason": wanted.reason}
    return query if input_ is None else query | {"input": input_}


def _tell(sender: Uploader, left_out: Mapping[str, int], say: Callable[[str], None]) -> None:
    counts = sorted(sender.counts.items(), key=lambda each: -each[1].ids)
    for address, count in counts[:_TOLD_MAX]:
        say(f"{address}: {count.ids:,} ids read, {count.new:,} of them not known before")
    if len(counts) > _TOLD_MAX:
        say(f"and {len(counts) - _TOLD_MAX:,} more addresses")
    for reason, records in sorted(left_out.items()):
        say(f"left out: {records:,} records, because {reason}")
    ids = sum(count.ids for _, count in counts)
    new = sum(count.new for _, count in counts)
    say(f"{ids:,} ids of {len(counts):,} addresses, {new:,} of them not known before")
