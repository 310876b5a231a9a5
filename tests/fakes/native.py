"""The fakes as the compiled fast path has its clients: records are pieces, and are sent as such."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any, cast

from confluent_kafka import Message

from ringfence_client.headers import Headers
from ringfence_service.kafka.io import errors_of, read_headers
from ringfence_service.kafka.model import UNREADABLE
from ringfence_service.native.extension import loaded
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.fakes.producer import FakeProducer

_NO_TEXT = (b"\xff", None)


def piece_of(
    messages: Sequence[Message],
    headers: Sequence[Headers | None],
    sources: Sequence[PartitionId],
) -> object:
    """Return messages of a Python client as a piece; `sources` has the partition of each."""
    ranks = {source: rank for rank, source in enumerate(dict.fromkeys(sources))}
    rows = [
        (
            ranks[source],
            message.offset(),
            message.timestamp()[1],
            message.key(),
            message.value(),
            [_NO_TEXT] if each is UNREADABLE else [(n.encode(), v) for n, v in each or ()],
        )
        for message, each, source in zip(messages, headers, sources, strict=True)
    ]
    rows.sort(key=itemgetter(0))
    return cast("Any", loaded().module).piece(rows, list(map(tuple, ranks)), [])


def as_produced(outputs: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `Producer.produce` for each record, those of pieces included."""
    for output in outputs:
        if len(output) > 1:
            yield output
            continue
        (records,) = output
        for row in range(records.start, records.end):
            sent = cast("Any", loaded().module).output(records.piece, row)
            if sent is not None:
                yield sent


class NativeConsumer(FakeConsumer):
    """A consumer that returns pieces."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """See `FakeConsumer`."""
        messages = super().consume(num_messages, timeout)
        records = [each for each in messages if each.error() is None]
        sources = [PartitionId(each.topic() or "", each.partition() or 0) for each in records]
        piece = piece_of(records, read_headers(records), sources)
        return Records.of(piece, errors_of(messages))


class NativeProducer(FakeProducer):
    """A producer that takes records of pieces."""

    _sending: tuple[Any, int] = (None, 0)
    """What is being sent, and how much of it was: the queue may have been full."""

    def produce(self, topic: Any, *rest: Any, **named: Any) -> None:
        """See `FakeProducer`."""
        if rest or named:
            super().produce(topic, *rest, **named)
            return
        if self._sending[0] is not topic:
            self._sending = topic, 0
        for output in as_produced([(topic[self._sending[1] :],)]):
            super().produce(*output)
            self._sending = topic, self._sending[1] + 1
