"""Worker router: sends a query to all workers of the instance and collects their answers.

Every worker is asked, since partitions move; a worker that does not own the subject refuses. A
worker that hangs makes the query time out, and blocks nothing else. Metrics are merged here too.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ringfence_service.queries.errors import NotPossible, NotRestored, Unavailable
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.registry import OF_ONE, Answer, Query, merged
from ringfence_service.queries.status import ServiceStatus
from ringfence_service.supervisor.worker_handle import WorkerHandle
from ringfence_service.telemetry.aggregation import MetricFamily, joined, without_addresses, written
from ringfence_service.telemetry.metrics import Metrics


class WorkerRouter(QueryService):
    """Answers queries from the workers of this instance."""

    def __init__(
        self, handles: Sequence[WorkerHandle], status: Callable[[], ServiceStatus]
    ) -> None:
        self._handles = handles
        self._status = status

    async def _answered(self, query: Query, timeout_s: float) -> Answer:
        deadline_s = time.monotonic() + timeout_s
        up = [handle for handle in self._handles if handle.is_up]
        if len(up) < len(self._handles) and not self._status().complete:
            sentence = "A worker is being replaced, so its partitions cannot answer; see /readyz."
            raise NotRestored(sentence, retry_after_s=2)
        replies = [asyncio.wrap_future(handle.ask(query, deadline_s)) for handle in up]
        outcomes = await asyncio.gather(*replies, return_exceptions=True)
        answers = [each for each in outcomes if isinstance(each, Answer)]
        refusals = [each for each in outcomes if isinstance(each, BaseException)]
        if refusals and not (answers and isinstance(query, OF_ONE)):
            raise gravest(refusals)
        if len(self._handles) == 1:
            return answers[0]
        return merged(query, answers, complete=self._status().complete)


def gravest(refusals: Sequence[BaseException]) -> BaseException:
    """Return the error to raise: not NotPossible, which also workers raise that own nothing."""
    return min(refusals, key=lambda error: isinstance(error, NotPossible))


_PATIENCE_S: Final = 1.0
"""How long a scrape waits for the workers, before it has the latest metrics of those that are late.

Less than the scrape timeout of Prometheus, 10 s by default.
"""


class SupervisorMetrics:
    """The metrics of the supervisor and all its workers."""

    def __init__(self, own: Metrics, handles: Sequence[WorkerHandle]) -> None:
        self._own = own
        self._handles = handles

    def http_request(self, route: str, method: str, status: int, duration_s: float) -> None:
        """Count and time a request, as `Metrics.http_request` does."""
        self._own.http_request(route, method, status, duration_s)

    def http_auth_failure(self, reason: str) -> None:
        """Count a refused request, as `Metrics.http_auth_failure` does."""
        self._own.http_auth_failure(reason)

    def http_connection_refused(self, reason: str) -> None:
        """Count a closed connection, as `Metrics.http_connection_refused` does."""
        self._own.http_connection_refused(reason)

    async def scrape(self, *, addresses: bool = True) -> bytes:
        """Return all metrics in Prometheus' text format.

        A worker that is late contributes its latest metrics. Without `addresses`, all addresses
        share one series.
        """
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
                    each.exception()  # marks it as retrieved; the worker ended meanwhile
        families: Iterable[MetricFamily] = joined(
            self._own.families(), [handle.families for handle in self._handles]
        )
        return written(families if addresses else without_addresses(families))
