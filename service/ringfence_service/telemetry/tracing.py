"""Tracing: one span for each sampled transaction, linked to the traces of its records.

Off unless an endpoint is set; OpenTelemetry is imported only then. A separate thread exports the
spans; a span that cannot be exported is dropped, and the loop never waits. Invariant: a record
keeps the `traceparent` that it arrived with.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from ringfence_client.headers import Headers
from ringfence_service.config.model import ServiceSettings, TracingSettings
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.record import trace_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

_PATH: Final = "/v1/traces"
_EXPORT_S: Final = 5.0
"""How long an export may take, for which only its own thread waits.

Spans that end meanwhile are queued, and dropped when the queue is full.
"""
_FLUSH_MS: Final = 2_000
"""How long the end of a worker waits for the last spans.

Less than the supervisor gives it to exit (`_LINGER_S`).
"""


class TransactionTrace:
    """The span of one sampled transaction."""

    def __init__(self, span: "Span", links_max: int) -> None:
        self._span = span
        self._links_left = links_max

    def look(self, column: Sequence[Headers | None]) -> None:
        """Link the span to the traces of records, given their headers, up to the maximum."""
        from opentelemetry.trace import SpanContext, TraceFlags

        for headers in column:
            if not self._links_left:
                return
            trace = trace_of(headers or ())
            if trace is not None:
                self._links_left -= 1
                ids = (int(trace.trace_id, 16), int(trace.span_id, 16))
                flags = TraceFlags(trace.flags)
                self._span.add_link(SpanContext(*ids, is_remote=True, trace_flags=flags))

    def end(self, plan: Plan) -> None:
        """End the span of a transaction that has committed."""
        self._span.update_name(_name(plan))
        self._span.set_attributes(_attributes(plan))
        self._span.end()

    def fail(self, cause: str) -> None:
        """End the span of a transaction that failed; its records are read again."""
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR, cause)
        self._span.end()


class Tracer(NamedTuple):
    """Starts the spans of transactions, and flushes them."""

    start: Callable[[], "Span"]
    flush: Callable[[], object]
    settings: TracingSettings

    def begin(self) -> TransactionTrace | None:
        """Return the trace of a new transaction; None if it is not sampled."""
        if random.random() >= self.settings.sample_ratio:  # noqa: S311 - no secret
            return None
        return TransactionTrace(self.start(), self.settings.links_max)


def open_tracer(
    settings: TracingSettings,
    service: ServiceSettings,
    version: str,
    exporter: "SpanExporter | None" = None,
) -> Tracer | None:
    """Return a tracer that exports to the endpoint, or to `exporter`; None if tracing is off."""
    if not settings.endpoint:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind

    names = {
        "service.name": "ringfence",
        "service.namespace": service.group_id,
        "service.instance.id": service.instance,
        "service.version": version,
    }
    provider = TracerProvider(resource=Resource.create(names), shutdown_on_exit=False)
    target = exporter or OTLPSpanExporter(endpoint=_url(settings.endpoint), timeout=_EXPORT_S)
    provider.add_span_processor(BatchSpanProcessor(target))
    tracer = provider.get_tracer("ringfence", version)
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.consumer.group.name": service.group_id,
    }
    return Tracer(
        start=lambda: tracer.start_span("process", kind=SpanKind.CONSUMER, attributes=attributes),
        flush=lambda: provider.force_flush(_FLUSH_MS),
        settings=settings,
    )


def _url(endpoint: str) -> str:
    """Return the URL of an endpoint, with OTLP's default path if it has none."""
    has_path = urlsplit(endpoint).path.strip("/")
    return endpoint if has_path else endpoint.rstrip("/") + _PATH


def _name(plan: Plan) -> str:
    topics = {source.topic for source in plan.next_offsets}
    return f"process {topics.pop()}" if len(topics) == 1 else "process"


def _attributes(plan: Plan) -> Mapping[str, str | int]:
    """Return the span attributes; topic and partition only if the transaction has just one."""
    tally, next_offsets = plan.tally, plan.next_offsets
    found: dict[str, str | int] = {
        "messaging.batch.message_count": tally.records_read,
        "ringfence.accepted": tally.accepted.total(),
        "ringfence.duplicates": tally.duplicates.total(),
        "ringfence.dead_letters": tally.dead_letters.total(),
        "ringfence.carried": tally.carried.total(),
    }
    topics: Collection[str] = {source.topic for source in next_offsets}
    if len(topics) == 1:
        found["messaging.destination.name"] = next(iter(topics))
    if len(next_offsets) == 1:
        ((source, following),) = next_offsets.items()
        found["messaging.destination.partition.id"] = str(source.partition)
        found["messaging.kafka.offset"] = following - 1
    return found
