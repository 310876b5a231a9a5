"""Traces: a span for each sampled transaction that read something, and nothing where it is off."""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ringfence_client.headers import DUPLICATE_ID
from ringfence_service.config.model import ServiceSettings, TracingSettings
from ringfence_service.config.validation import tracing_problems
from ringfence_service.processor.reporter import Reporter
from ringfence_service.telemetry.tracing import Tracer, open_tracer
from tests.support.helpers import some
from tests.support.living import GROUP, Living, gone, turns

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = ("traceparent", f"00-{TRACE}-{SPAN}-01".encode())
ENDPOINT = "http://127.0.0.1:4318"


class Traced(Living):
    """An instance whose spans stay in memory."""

    def __init__(self, sample_ratio: float = 1.0, links_max: int = 32) -> None:
        super().__init__()
        self.exporter = InMemorySpanExporter()
        settings = TracingSettings(ENDPOINT, sample_ratio, links_max)
        self.tracer = open_tracer(settings, self.config.service, "0", self.exporter)
        self.watch = Reporter(
            self.config.service, self.clock, self.board, self.watch.metrics, self.tracer
        )

    def put(self, identifier: bytes, *headers: tuple[str, bytes | None]) -> None:
        self.write(b"v", (DUPLICATE_ID, identifier), *headers)

    def spans(self) -> tuple[ReadableSpan, ...]:
        assert self.tracer is not None
        self.tracer.flush()
        return tuple(self.exporter.get_finished_spans())


def test_a_transaction_is_one_span_with_the_attributes_of_messaging() -> None:
    traced = Traced()
    for identifier in (b"a", b"b", b"a"):
        traced.put(identifier)
    traced.running()
    (span,) = traced.spans()
    assert (span.name, span.kind) == ("process orders", SpanKind.CONSUMER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.consumer.group.name": GROUP,
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 2,
        "messaging.batch.message_count": 3,
        "ringfence.accepted": 2,
        "ringfence.duplicates": 1,
        "ringfence.dead_letters": 1,
        "ringfence.carried": 0,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.namespace"] == GROUP


def test_it_is_linked_to_the_traces_of_its_records_which_pass_as_they_are() -> None:
    traced = Traced(links_max=2)
    traced.put(b"a", TRACEPARENT)
    traced.put(b"b", ("traceparent", b"nonsense"))
    traced.put(b"c", TRACEPARENT)
    traced.put(b"d", TRACEPARENT)
    traced.running()
    (span,) = traced.spans()
    links = [
        (f"{each.context.trace_id:032x}", f"{each.context.span_id:016x}") for each in span.links
    ]
    assert links == [(TRACE, SPAN)] * 2, "as many as are allowed"
    told = [dict(record.headers or []) for record in traced.cluster.records("orders.unique")]
    assert told[0]["traceparent"] == TRACEPARENT[1]


def test_an_empty_poll_has_no_span() -> None:
    traced = Traced()
    turns(traced.running())
    assert traced.spans() == ()


def test_a_transaction_that_chance_does_not_pick_has_none() -> None:
    traced = Traced(sample_ratio=0.0)
    traced.put(b"a")
    traced.running()
    assert traced.spans() == ()


def test_a_transaction_that_is_aborted_ends_in_an_error_and_the_next_attempt_is_another() -> None:
    traced = Traced()
    loop = traced.running()
    traced.faults.at["produce"] = iter([gone()])
    traced.put(b"a")
    turns(loop)
    failed, done = traced.spans()
    assert failed.status.status_code is StatusCode.ERROR
    assert done.status.status_code is StatusCode.UNSET


@pytest.fixture
def collector() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """Takes spans as a collector does."""
    heard: list[tuple[str, ExportTraceServiceRequest]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            heard.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", heard
        server.shutdown()
        thread.join()


def test_spans_arrive_at_a_collector_by_otlp_over_http(
    collector: tuple[str, list[tuple[str, ExportTraceServiceRequest]]],
) -> None:
    url, heard = collector
    service = ServiceSettings(group_id="g", instance="7")
    tracer = open_tracer(TracingSettings(url, 1.0), service, "0.1.0")
    assert isinstance(tracer, Tracer)
    trace = some(tracer.begin())
    trace.look([None, [TRACEPARENT]])
    trace.fail("the broker is away")
    tracer.flush()
    ((path, request),) = heard
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (names["service.name"], names["service.instance.id"]) == ("ringfence", "7")
    (span,) = resource.scope_spans[0].spans
    assert span.links[0].trace_id.hex() == TRACE
    assert span.status.message == "the broker is away"


def test_without_an_endpoint_there_is_no_tracer() -> None:
    assert open_tracer(TracingSettings(), ServiceSettings(), "0") is None


def test_without_the_extra_an_endpoint_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tracing_problems(TracingSettings(ENDPOINT)) == []
    monkeypatch.setattr("ringfence_service.config.validation.find_spec", lambda _name: None)
    (problem,) = tracing_problems(TracingSettings(ENDPOINT))
    assert "pip install --require-hashes -r requirements/tracing.txt" in problem.fix
    assert tracing_problems(TracingSettings()) == []


def test_a_worker_that_does_not_trace_imports_nothing_for_it() -> None:
    code = (
        "import sys, ringfence_service.supervisor.worker_process;"
        "import ringfence_service.telemetry.tracing as t;"
        "import ringfence_service.config.model as s;"
        "t.open_tracer(s.TracingSettings(), s.ServiceSettings(), '0');"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
