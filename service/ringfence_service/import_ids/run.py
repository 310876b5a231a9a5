"""ID import: the steps of `ringfence adopt`: find the route, check, read, upload, report."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ringfence_service.clock import SystemClock
from ringfence_service.config.expressions import reads
from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.tasks import Hop, Task
from ringfence_service.dedup.route import InputRoute, resolve
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.import_ids.decided import wait_until_decided
from ringfence_service.import_ids.reader import OffsetRange, TopicReader
from ringfence_service.import_ids.source import IdLine, IdSource
from ringfence_service.import_ids.uploader import Uploader
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.kafka.errors import fault_of
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.kafka.topics import by_address
from ringfence_service.metadata.effective_config import in_effect
from ringfence_service.schemas.documents import connect
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import PartitionId

_REQUEST_S: Final = 30.0
"""How long the broker may take for offsets, as in `decided.py`; only the command's user waits."""
_REPORTED_MAX: Final = 20
"""How many addresses the report names, those with the most ids: a topic may have any number."""


class ImportRequest(NamedTuple):
    """Options of `ringfence adopt`."""

    topic: str | None
    file: Path | None
    input: str | None
    address: str | None
    since_ms: int | None
    """Records before this time, in ms since the epoch, are left out."""
    reason: str
    dry_run: bool


def adopt(
    file: Config, request: ImportRequest, client: httpx2.Client, say: Callable[[str], None]
) -> None:
    """Import ids into the service behind `client`; raise ExitError on failure."""
    if request.file is not None:
        uploader = Uploader(client, _query(request, request.input))
        for line in _lines_of_file(request.file, request.address):
            uploader.add(line)
        uploader.flush()
        _report(uploader, {}, say)
        return
    try:
        _adopt_topic(file, request, client, say)
    except KafkaException as error:
        sentence = f"The broker answered {fault_of(error.args[0]).cause}; adopt again."
        raise ExitError(ExitCode.BROKER, sentence) from error
    except RegistryUnavailableError as error:
        raise ExitError(ExitCode.BROKER, f"No schema from {error}; adopt again.") from error


def _adopt_topic(
    file: Config, request: ImportRequest, client: httpx2.Client, say: Callable[[str], None]
) -> None:
    topic, clients = request.topic or "", KafkaClients(file)
    connect(file.schema_registry)
    config = in_effect(file, clients, SystemClock()).config
    inputs = resolve(config.routes, clients.cluster.names(), config.service.group_id)
    route = route_of(config.routes, inputs, topic, request.input)
    source = IdSource(route, config.addresses, request.address)
    uploader = Uploader(client, _query(request, route.topic))
    topics = clients.cluster.topics([topic, route.topic])
    check_topics(topic, route, topics)
    with closing(clients.observer()) as consumer:
        spans = _spans(consumer, topics[topic], topic, request.since_ms)
        spans = _decided(config, inputs.get(topic), consumer, spans)
        for message in TopicReader(consumer, spans):
            line = source.line(message)
            if line is not None:
                uploader.add(line)
    uploader.flush()
    _report(uploader, source.left_out, say)


def route_of(
    routes: Sequence[RouteSettings],
    inputs: Mapping[str, InputRoute],
    topic: str,
    name: str | None,
) -> InputRoute:
    """Return the route of the input whose ids a topic contains, bound to that input.

    Without a name that is the topic itself if it is an input, or else the only input of the routes.
    `inputs` are those that exist. Raises ExitError if the input cannot be determined.
    """
    if name is None and topic in inputs:
        return inputs[topic]
    if name is None:
        known = [each for route in routes for each in route.inputs]
        if len(known) != 1 or known[0].startswith("^"):
            sentence = (
                f"The input for the records of {topic} cannot be determined; name the input that "
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
    """Raise ExitError if a topic is missing, or the partitions of the ids are not known."""
    for name in (topic, route.topic):
        if name not in topics:
            raise ExitError(ExitCode.USAGE, f"There is no topic {name}; check the name.")
    here, there = topics[topic].partitions, topics[route.topic].partitions
    if route.settings.scope == "partition" and here != there:
        sentence = (
            f"{topic} has {here} partitions and {route.topic} has {there}. With scope "
            f"partition an id is remembered for the partition of its record, and the partition of "
            f"{route.topic} for a record of {topic} is not known. Copy {topic} to a topic with "
            f"{there} partitions and adopt that, or use a route with scope address."
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)


def _spans(
    consumer: Consumer, info: TopicInfo, topic: str, since_ms: int | None
) -> dict[PartitionId, OffsetRange]:
    """Return the committed offsets of each partition, from its start or a time on."""
    partitions = [TopicPartition(topic, number) for number in range(info.partitions)]
    found = {}
    for each in partitions:
        start, end = consumer.get_watermark_offsets(each, timeout=_REQUEST_S)
        found[PartitionId(topic, each.partition)] = OffsetRange(start, end)
    if since_ms is None:
        return found
    times = [TopicPartition(topic, each.partition, since_ms) for each in partitions]
    for each in consumer.offsets_for_times(times, timeout=_REQUEST_S):
        source = PartitionId(topic, each.partition)
        span = found[source]
        found[source] = span._replace(start=each.offset if each.offset >= 0 else span.end)
    return found


def _decided(
    config: Config,
    own: InputRoute | None,
    consumer: Consumer,
    spans: dict[PartitionId, OffsetRange],
) -> dict[PartitionId, OffsetRange]:
    """Restrict an input of the service to the records decided so far; keep another topic whole."""
    if own is None:
        return spans
    spans = before_the_group(consumer, spans)
    if own.settings.is_repartitioned:
        # After reading the offsets: records repartitioned by then are before the current ends.
        deciding = KafkaClients(config, Task(hop=Hop.ADDRESSES))
        wait_until_decided(deciding, by_address(config.service.group_id), SystemClock())
    return spans


def before_the_group(
    consumer: Consumer, spans: Mapping[PartitionId, OffsetRange]
) -> dict[PartitionId, OffsetRange]:
    """Restrict ranges of an input to the offsets below those that the group has committed.

    A record that the service has yet to read would become a duplicate of itself. Raises ExitError
    if a partition has no committed offset.
    """
    partitions = [TopicPartition(*source) for source in spans]
    committed = {
        PartitionId(each.topic, each.partition): each.offset
        for each in consumer.committed(partitions, timeout=_REQUEST_S)
    }
    unread = [source for source, offset in committed.items() if offset < 0]
    if unread:
        topic = unread[0].topic
        sentence = (
            f"The service has not started to read {topic}, so the records that it will read would "
            'be duplicates of themselves. Start it with service.on_missing_offset = "latest"; with '
            '"earliest" it reads all old records itself, and there is nothing to adopt.'
        )
        raise ExitError(ExitCode.CONTRADICTION, sentence)
    return {
        source: span._replace(end=min(span.end, committed[source]))
        for source, span in spans.items()
    }


def _lines_of_file(path: Path, address: str | None) -> Iterator[IdLine]:
    if not address:
        raise ExitError(ExitCode.USAGE, "A file contains no address; name one with --address.")
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                row: dict[str, Any] = json.loads(text)
            except ValueError as error:
                sentence = f"{path}, line {number}: {error}; use lines as ids:export writes them."
                raise ExitError(ExitCode.USAGE, sentence) from error
            yield IdLine(address, row)


def _query(request: ImportRequest, input_: str | None) -> dict[str, str]:
    query = {"dry_run": str(request.dry_run).lower(), "reason": request.reason}
    return query if input_ is None else query | {"input": input_}


def _report(uploader: Uploader, left_out: Mapping[str, int], say: Callable[[str], None]) -> None:
    counts = sorted(uploader.counts.items(), key=lambda each: -each[1].ids)
    for address, count in counts[:_REPORTED_MAX]:
        say(f"{address}: {count.ids:,} ids read, {count.new:,} of them not known before")
    if len(counts) > _REPORTED_MAX:
        say(f"and {len(counts) - _REPORTED_MAX:,} more addresses")
    for reason, records in sorted(left_out.items()):
        say(f"left out: {records:,} records, because {reason}")
    ids = sum(count.ids for _, count in counts)
    new = sum(count.new for _, count in counts)
    say(f"{ids:,} ids of {len(counts):,} addresses, {new:,} of them not known before")
