"""Worker router: sends a query to all workers that may own a part of the answer, and merges.

Every worker is asked, since partitions move; a worker that does not own the subject says so. A
worker that hangs ends the query at its deadline, and nothing else. Metrics are merged here too.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from service.config.load import Config
from service.queries.errors import NotPossible, NotRestored, Unavailable
from service.queries.inbox import QueryService
from service.queries.publisher_numbers import check_change, deciding_inputs, written_partition
from service.queries.publishers import (
    PublisherAnswer,
    PublisherQuery,
    SetSequence,
    merged_publisher,
)
from service.queries.registry import OF_ONE, Answer, Query, merged
from service.queries.status import ServiceStatus
from service.supervisor.worker_handle import WorkerHandle
from service.telemetry.aggregation import MetricFamily, joined, without_addresses, written
from service.telemetry.metrics import Metrics


class WorkerRouter(QueryService):
    """See the module."""

    def __init__(
        self,
        config: Callable[[], Config],
        handles: Sequence[WorkerHandle],
        status: Callable[[], ServiceStatus],
    ) -> None:
        """`config` is the one that holds now."""
        self._config = config
        self._handles = handles
        self._status = status

    def _answered(self, query: Query, timeout_s: float) -> Awaitable[Answer]:
        deadline_s = time.monotonic() + timeout_s
        if isinstance(query, SetSequence) and len(self._handles) > 1:
            return self._number_changed(query, deadline_s)
        return self._asked(query, deadline_s)

    async def _asked(self, query: Query, deadline_s: float) -> Answer:
        up = [handle for handle in self._handles if handle.is_up]
        if len(up) < len(self._handles) and not self._status().complete:
            sentence = "A worker is being replaced, and its partitions answer nothing; see /readyz."
            raise NotRestored(sentence, retry_after_s=2)
        replies = [asyncio.wrap_future(handle.ask(query, deadline_s)) for handle in up]
        told = await asyncio.gather(*replies, return_exceptions=True)
        answers = [each for each in told if isinstance(each, Answer)]
        refusals = [each for each in told if isinstance(each, BaseException)]
        if refusals and not (answers and isinstance(query, OF_ONE)):
            raise gravest(refusals)
        if len(self._handles) == 1:
            return answers[0]
        return merged(query, answers, complete=self._status().complete)

    async def _number_changed(self, change: SetSequence, deadline_s: float) -> PublisherAnswer:
        """As one loop does it: find the partition, change it there, tell how it stands after it."""
        check_change(change, self._config().addresses)
        question = PublisherQuery(change.publisher)
        before = await self._asked(question, deadline_s)
        assert isinstance(before, PublisherAnswer)  # that was the question
        deciding = deciding_inputs([self._status()], self._config().service.group_id)
        place = written_partition(change, before.places, deciding)
        named = change._replace(topic=place.topic, partition=place.partition)
        told = await self._asked(named, deadline_s)
        after = await self._asked(question, deadline_s)
        assert isinstance(told, PublisherAnswer)  # of the one that decides
        assert isinstance(after, PublisherAnswer)  # that was the question
        return merged_publisher(question, [after, told]) if change.dry_run else after


def gravest(refusals: Sequence[BaseException]) -> BaseException:
    """What may pass goes before what a process says that owns nothing; errors of ours go first."""
    return min(refusals, key=lambda error: isinstance(error, NotPossible))


_PATIENCE_S: Final = 1.0


class SupervisorMetrics:
    """The supervisor's own metrics, and those of its children with them."""

    def __init__(self, own: Metrics, handles: Sequence[WorkerHandle]) -> None:
        self._own = own
        self._handles = handles

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """See `Metrics.http_request`."""
        self._own.http_request(route, method, status, duration_s)

    def http_auth_failure(self, reason: str) -> None:
        """See `Metrics.http_auth_failure`."""
        self._own.http_auth_failure(reason)

    def http_connection_refused(self, reason: str) -> None:
        """See `Metrics.http_connection_refused`."""
        self._own.http_connection_refused(reason)

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """All metrics in Prometheus' text format. See `Metrics.scrape`."""
        asked = []
        for handle in self._handles:
            with contextlib.suppress(Unavailable):
                asked.append(asyncio.wrap_future(handle.scrape()))
        if asked:
            _, late = await asyncio.wait(asked, timeout=_PATIENCE_S)
            for each in late:
                each.cancel()
            for each in asked:
                if each.done() and not each.cancelled():
                    each.exception()  # seen: it ended while it was asked
        told: Iterable[MetricFamily] = joined(
            self._own.families(), [m.families for m in self._handles]
        )
        return written(told if addresses else without_addresses(told))
