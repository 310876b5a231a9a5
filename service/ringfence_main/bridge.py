"""`ringfence bridge`: builds clients, loop and API from the configuration, runs until SIGTERM."""

import platform
import signal
import sys
import time
from datetime import UTC, datetime
from types import FrameType
from typing import Final

import confluent_kafka
import structlog

from ringfence_api.app import WITHOUT_STATE
from ringfence_api.hosts import allowed_hosts
from ringfence_api.ports import ServiceView
from ringfence_api.server import listening, opened
from ringfence_service.bridge.clients import KafkaBridgeClients, property_problems
from ringfence_service.bridge.config import BridgeConfig
from ringfence_service.bridge.loop import BridgeLoop
from ringfence_service.bridge.reporter import BridgeReporter
from ringfence_service.clock import SystemClock, product_version
from ringfence_service.config.load import ConfigErrors
from ringfence_service.errors import ExitCode
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.status import ServiceInfo, ServiceStatus, StatusBoard
from ringfence_service.supervisor.heap import keep_freed_memory
from ringfence_service.supervisor.watchdog import (
    Watchdog,
    calm_garbage_collector,
    raise_descriptor_limit,
)
from ringfence_service.telemetry import logging as log
from ringfence_service.telemetry.metrics import Metrics

_HEARTBEAT_MAX_MS: Final = 60_000
"""How old a heartbeat may be before `/livez` fails: the limit of the watchdog (`HANG_LIMIT_S`)."""
_log = structlog.stdlib.get_logger(__name__)


def forward(config: BridgeConfig) -> int:
    """Forward until SIGTERM or SIGINT and return the exit code; raise ExitError on failure."""
    log.configure(sys.stderr, config.log.level, config.log.format)
    raise_descriptor_limit()
    problems = property_problems(config)
    if problems:
        raise ConfigErrors(problems)
    clock, clients, group_id = SystemClock(), KafkaBridgeClients(config), config.bridge.group_id
    nothing_yet = ServiceStatus.starting(platform.node(), group_id, datetime.now(UTC))
    board = StatusBoard(nothing_yet, time.monotonic)
    libraries = {
        "confluent_kafka": str(confluent_kafka.__version__),
        "librdkafka": confluent_kafka.libversion()[0],
    }
    metrics = Metrics(board, {"version": product_version(), **libraries}, addresses_max=1)
    loop = BridgeLoop(config, clients, clock, BridgeReporter(group_id, clock, board, metrics))
    _stop_on_signals(loop)
    access = opened(config.api)
    view = ServiceView(
        info=lambda: ServiceInfo(
            version=product_version(),
            python=platform.python_version(),
            libraries=libraries,
            cluster_id=clients.source.known_id,
            instance=platform.node(),
            group_id=group_id,
        ),
        board=board,
        inbox=QueryInbox(1),  # never used: a bridge has no state to query
        metrics=metrics,
        allowed_hosts=allowed_hosts(config.api),
        heartbeat_max_ms=_HEARTBEAT_MAX_MS,
        ask_timeout_s=0.0,
        access=access,
    )
    if access.tokens_file is not None:
        metrics.watched_file(access.tokens_file.name, access.tokens_file.is_refused)
    server = listening(view, WITHOUT_STATE, config.api)
    _log.info("started", api=server.url, group_id=group_id)
    keep_freed_memory()
    calm_garbage_collector()
    Watchdog(board).start()
    try:
        loop.run()
    finally:
        server.stop()
    _log.info("stopped")
    return ExitCode.DONE


def _stop_on_signals(loop: BridgeLoop) -> None:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        loop.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
