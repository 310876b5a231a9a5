"""A live topic is read in the order of its times and sent to the API; what cannot be is refused."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import cast

import httpx2
import pytest
from confluent_kafka import Consumer, Message
from hypothesis import given
from hypothesis import strategies as st

from ringfence_service.config.model import RouteSettings
from ringfence_service.dedup.route import InputRoute, resolve
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.import_ids import reader as reading
from ringfence_service.import_ids import uploader as sending
from ringfence_service.import_ids.reader import OffsetRange, TopicReader
from ringfence_service.import_ids.run import before_the_group, check_topics, route_of
from ringfence_service.import_ids.source import IdLine
from ringfence_service.import_ids.uploader import Uploader
from ringfence_service.kafka.model import TopicInfo
from ringfence_state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.fakes.group import Committed
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Record
from tests.support.helpers import ending


def cluster_of(times_ms: Sequence[Sequence[int]]) -> FakeCluster:
    """A topic with these records in its partitions."""
    cluster = FakeCluster()
    cluster.create_topic("live", len(times_ms))
    for partition, column in enumerate(times_ms):
        for time_ms in column:
            cluster.write("live", partition, Record(None, b"v", None, time_ms))
    return cluster


def consumer_of(cluster: FakeCluster) -> Consumer:
    return cast("Consumer", FakeConsumer(cluster, "g"))


@given(st.lists(st.lists(st.integers(1, 50), max_size=8), min_size=1, max_size=4))
def test_every_record_is_read_once_in_the_order_of_times(columns: list[list[int]]) -> None:
    cluster = cluster_of(columns)
    spans = {
        PartitionId("live", n): OffsetRange(0, len(column)) for n, column in enumerate(columns)
    }
    read = [
        (m.partition(), m.offset(), m.timestamp()[1])
        for m in TopicReader(consumer_of(cluster), spans)
    ]
    assert len(read) == sum(map(len, columns)) == len(set(read))
    for number, column in enumerate(columns):
        assert [time for partition, _, time in read if partition == number] == column
    if all(column == sorted(column) for column in columns):
        assert [time for _, _, time in read] == sorted(chain.from_iterable(columns))


def test_what_comes_after_the_end_that_was_seen_is_left_out() -> None:
    cluster = cluster_of([[1, 2, 3], [1, 2, 3]])
    spans = {PartitionId("live", 0): OffsetRange(1, 2), PartitionId("live", 1): OffsetRange(3, 3)}
    read = [(m.partition(), m.offset()) for m in TopicReader(consumer_of(cluster), spans)]
    assert read == [(0, 1)]


class Counting(FakeConsumer):
    """Counts the bytes that it has delivered."""

    delivered = 0

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        messages = super().consume(num_messages, timeout)
        self.delivered += sum(map(len, messages))
        return messages


def test_what_waits_for_other_partitions_is_limited_in_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_QUEUED_BYTES_MAX", 2_000_000)
    size, count = 10_000, 1_000
    cluster = FakeCluster()
    cluster.create_topic("live", 2)
    for partition, times_ms in enumerate([range(count), range(count, 2 * count)]):
        for time_ms in times_ms:
            cluster.write("live", partition, Record(None, bytes(size), None, time_ms))
    consumer = Counting(cluster, "g")
    spans = {PartitionId("live", n): OffsetRange(0, count) for n in (0, 1)}
    held = [
        consumer.delivered - taken * size
        for taken, _ in enumerate(TopicReader(cast("Consumer", consumer), spans), 1)
    ]
    assert len(held) == 2 * count
    assert max(held) < 9_000_000, "the limit and one read, of 20 MB in all"


def test_a_topic_that_delivers_nothing_more_is_reported() -> None:
    reading = TopicReader(
        consumer_of(cluster_of([[1]])), {PartitionId("live", 0): OffsetRange(0, 2)}, 0.0
    )
    with pytest.raises(ExitError, match="live-0"):
        list(reading)


Handler = Callable[[httpx2.Request], httpx2.Response]


def sender_of(handler: Handler, patience_s: float = 60.0) -> Uploader:
    transport = httpx2.MockTransport(handler)
    client = httpx2.Client(base_url="http://api", transport=transport)
    return Uploader(client, {"input": "in"}, patience_s)


def line(address: str, number: int) -> IdLine:
    return IdLine(address, {"id": str(number)})


def test_lines_of_an_address_keep_their_order_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sending, "_LINES_AT_ONCE", 3)
    monkeypatch.setattr(sending, "_LINES_HELD_MAX", 7)
    heard: dict[str, list[str]] = {}

    def handler(request: httpx2.Request) -> httpx2.Response:
        assert request.url.params["input"] == "in"
        rows = [json.loads(each)["id"] for each in request.content.splitlines()]
        heard.setdefault(request.url.raw_path.decode().partition("?")[0], []).extend(rows)
        return httpx2.Response(200, json={"ids": len(rows), "new": 1})

    sender = sender_of(handler)
    for number in range(20):
        sender.add(line("a/b" if number % 2 else "..", number))
    sender.flush()
    assert heard == {
        "/v1/addresses/%2E%2E/ids:import": [str(n) for n in range(0, 20, 2)],
        "/v1/addresses/a%2Fb/ids:import": [str(n) for n in range(1, 20, 2)],
    }
    assert {address: count.ids for address, count in sender.counts.items()} == {"a/b": 10, "..": 10}


def test_long_ids_are_sent_in_requests_of_limited_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        sizes.append(len(request.content))
        return httpx2.Response(200, json={"ids": len(request.content.splitlines()), "new": 1})

    monkeypatch.setattr(sending, "_BYTES_AT_ONCE", 300_000)
    monkeypatch.setattr(sending, "_BYTES_HELD_MAX", 1_000_000)
    sender = sender_of(handler)
    for number in range(40):
        sender.add(IdLine("one", {"id": f"{number}".zfill(65_000)}))
    assert 300_000 <= max(sizes) < 400_000
    for number in range(40):  # so that no address reaches its own limit
        sender.add(IdLine(f"a{number}", {"id": f"{number}".zfill(65_000)}))
    assert sum(sizes) > 3_000_000, "what is held for all of them is limited too"
    sender.flush()
    assert sum(count.ids for count in sender.counts.values()) == 80


def test_who_cannot_answer_now_is_asked_again() -> None:
    replies = [
        httpx2.Response(503, headers={"Retry-After": "0"}, json={"detail": "later"}),
        httpx2.Response(200, json={"ids": 1, "new": 1}),
    ]
    sender = sender_of(lambda _request: replies.pop(0))
    sender.add(line("a", 1))
    sender.flush()
    assert sender.counts["a"].ids == 1


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (httpx2.Response(422, json={"detail": "only a ring"}), "only a ring"),
        (httpx2.Response(503, json={"detail": "later"}), "later"),
        (httpx2.Response(404, text="<html>"), "404"),
    ],
)
def test_a_refusal_is_reported_in_its_own_words(reply: httpx2.Response, words: str) -> None:
    sender = sender_of(lambda _request: reply, patience_s=-1.0)
    sender.add(line("a", 1))
    with ending(ExitCode.NO, words):
        sender.flush()


@pytest.mark.parametrize("fault", [httpx2.ConnectError, httpx2.LocalProtocolError])
def test_a_silent_server_is_named_but_no_header_is(fault: type[httpx2.TransportError]) -> None:
    def handler(_request: httpx2.Request) -> httpx2.Response:
        raise fault("Illegal header value b'Bearer geheim'")

    sender = sender_of(handler)
    sender.add(line("a", 1))
    with pytest.raises(ExitError, match="http://api gives no answer") as ended:
        sender.flush()
    assert "geheim" not in ended.value.sentence


A = RouteSettings(name="a", inputs=("a",))
B = RouteSettings(name="b", inputs=("^b.*",))


@pytest.mark.parametrize(
    ("routes", "topic", "name", "found"),
    [
        ([A], "live", None, ("a", "a")),
        ([A, B], "live", "bb", ("b", "bb")),
        ([A, B], "bb", None, ("b", "bb")),
        ([A, B], "bb", "a", ("a", "a")),
        (
            [A, B],
            "a.unique",
            None,
            r"records of a\.unique cannot be determined; .* --input \(a, \^b\.\*\)",
        ),
        ([B], "live", None, "--input"),
        ([A, B], "live", "c", "No route reads c; .* --input"),
    ],
)
def test_the_route_is_that_of_the_input_and_never_guessed(
    routes: list[RouteSettings], topic: str, name: str | None, found: tuple[str, str] | str
) -> None:
    inputs = resolve(routes, ["a", "bb", "live", "a.unique"], "g")
    if isinstance(found, str):
        with pytest.raises(ExitError, match=found):
            route_of(routes, inputs, topic, name)
    else:
        route = route_of(routes, inputs, topic, name)
        assert (route.settings.name, route.topic) == found


@pytest.mark.parametrize("scope", ["address", "partition"])
def test_with_scope_partition_the_partitions_have_to_be_the_same(scope: str) -> None:
    route = InputRoute.bind(
        RouteSettings(name="r", inputs=("in",), scope=scope),  # type: ignore[arg-type]  # one of both
        "in",
    )

    def info(partitions: int) -> TopicInfo:
        return TopicInfo("id", partitions, 1, "delete", {})

    check_topics("live", route, {"live": info(3), "in": info(3)})
    topics = {"live": info(4), "in": info(3)}
    if scope == "address":
        check_topics("live", route, topics)
    else:
        with pytest.raises(ExitError, match="4 partitions and in has 3"):
            check_topics("live", route, topics)
    with pytest.raises(ExitError, match="no topic live"):
        check_topics("live", route, {"in": info(3)})


def test_of_the_input_itself_only_what_was_read_already_is_adopted() -> None:
    cluster = cluster_of([[1, 2, 3], [1, 2]])
    spans = {PartitionId("live", 0): OffsetRange(0, 3), PartitionId("live", 1): OffsetRange(0, 2)}
    consumer = consumer_of(cluster)
    with pytest.raises(ExitError, match="on_missing_offset"):
        before_the_group(consumer, spans)
    for number in range(2):
        cluster.group("g").committed[PartitionId("live", number)] = Committed(2, "")
    assert before_the_group(consumer, spans) == {
        PartitionId("live", 0): OffsetRange(0, 2),
        PartitionId("live", 1): OffsetRange(0, 2),
    }
