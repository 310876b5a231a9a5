"""The fake's producer without transactions: idempotent, and without gaps.

Like librdkafka with `enable.gapless.guarantee` it sends nothing more once a record was refused:
that record's report has the broker's reason, those behind it were purged, and the producer has a
fatal error for the next caller.
"""

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message

from ringfence_state.model import PartitionId
from tests.fakes.errors import check_nothing_is_handled
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Headers, Record
from tests.fakes.producer import OnDelivery, Queued


class FakeDelivery:
    """One producer; `batch_records_max` is how many records share a request, and its fate."""

    def __init__(self, log: FakeCluster, batch_records_max: int) -> None:
        self._log = log
        self._batch_records_max = batch_records_max
        self._queue: list[Queued] = []
        self._reports: list[Callable[[], None]] = []
        self._fatal: KafkaError | None = None

    def __len__(self) -> int:
        return len(self._queue) + len(self._reports)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: OnDelivery,
        partitioner: None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        """Queue a record."""
        del partitioner
        self._refuse_if_failed()
        self._log.step("produce")
        record = Record(key, value, headers, timestamp or self._log.now_ms)
        self._queue.append(Queued(PartitionId(topic, partition), record, on_delivery))

    def flush(self, timeout: float) -> int:
        """Send what is queued; returns the number left."""
        try:
            self._log.step("flush")
        except KafkaException as silence:
            if not silence.args[0].retriable():
                raise
            self._log.wait(timeout)  # the broker does not answer: all of it stays queued
            return len(self._queue)
        while self._queue and self._fatal is None:
            self._send(self._queue[: self._batch_records_max])
            del self._queue[: self._batch_records_max]
        self._refuse_if_failed()
        self._serve()
        return len(self._queue)

    def poll(self, timeout: float) -> int:
        """Serve reports."""
        del timeout
        check_nothing_is_handled()
        return self._serve()

    def purge(self) -> None:
        """Forget what has not been sent."""
        self._queue.clear()

    def _send(self, request: list[Queued]) -> None:
        blamed = [each for each in request if self._refusal(each) is not None]
        if not blamed:
            for each in request:
                self._log.write(*each.place, each.record)
            return
        code = self._refusal(blamed[0])
        assert code is not None
        self._fatal = KafkaError(KafkaError._GAPLESS_GUARANTEE, "no gap", fatal=True)
        # The broker refuses a request as a whole.
        for each in request:
            self._report(each, code)
        for each in self._queue[len(request) :]:
            self._report(each, KafkaError._PURGE_QUEUE)

    def _refusal(self, queued: Queued) -> int | None:
        topic = self._log.logs.get(queued.place.topic)
        if topic is None or queued.place.partition >= len(topic.partitions):
            return int(KafkaError._UNKNOWN_PARTITION)
        return topic.refusal(queued.record, self._log.now_ms)

    def _report(self, queued: Queued, code: int) -> None:
        message = Message(topic=queued.place.topic, partition=queued.place.partition)
        on_delivery = queued.on_delivery
        assert on_delivery is not None  # every caller passes a report callback
        self._reports.append(lambda: on_delivery(KafkaError(code), message))

    def _serve(self) -> int:
        reports, self._reports = self._reports, []
        for report in reports:
            report()
        return len(reports)

    def _refuse_if_failed(self) -> None:
        check_nothing_is_handled()
        if self._fatal is not None:
            raise KafkaException(self._fatal)
