"""The fakes as the compiled fast path has its clients: records are pieces, and spans are sent."""

from collections import deque
from typing import Any

from confluent_kafka import Message

from service.kafka.io import read_headers
from service.native.records import Records
from state.model import PartitionId
from tests.fakes.consumer import FakeConsumer
from tests.fakes.producer import FakeProducer


class NativeConsumer(FakeConsumer):
    """A consumer that returns pieces."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """See `FakeConsumer`."""
        messages, records = super().consume(num_messages, timeout), list[Message]()
        errors = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            else:
                place = message.topic(), message.partition() or 0
                errors.append((error, *place))
        sources = [PartitionId(each.topic() or "", each.partition() or 0) for each in records]
        return Records.of(records, read_headers(records), sources, errors)


class NativeProducer(FakeProducer):
    """A producer that takes spans."""

    _span: tuple[Any, deque[Any]] = (None, deque())
    """The span that is being sent, and what is left of it: the queue may have been full."""

    def produce(self, topic: Any, *rest: Any, **named: Any) -> None:
        """See `FakeProducer`."""
        if rest or named:
            super().produce(topic, *rest, **named)
            return
        if self._span[0] is not topic:
            self._span = topic, deque(topic.outputs())
        while self._span[1]:
            super().produce(*self._span[1][0])
            self._span[1].popleft()
