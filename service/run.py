"""Run: configuration → state folder, clients, loop and API, until SIGTERM. What `serve` does."""

import platform
import signal
import sys
import time
from datetime import UTC, datetime
from types import FrameType
from typing import Final

import confluent_kafka
import structlog

from api.app import create_app
from api.hosts import allowed_hosts
from api.server import BindError, serve_in_thread
from api.view import ServiceView
from service import log
from service.clock import SystemClock
from service.config import Config, ConfigErrors
from service.control import Inbox
from service.errors import ExitCode, ExitError
from service.kafka import KafkaClients, property_problems
from service.metrics import Metrics
from service.status import Info, Status, StatusBoard
from service.tuning import calm_garbage_collector
from service.version import product_version
from service.watch import Watch
from service.worker import Worker
from state.directory import Directory, DirectoryHeldError
from state.rocks import RocksStores

_INBOX_DEPTH: Final = 64
_ADDRESS_LABELS_MAX: Final = 100
_ASK_TIMEOUT_S: Final = 5.0
_HEARTBEAT_MAX_MS: Final = 60_000

_log = structlog.stdlib.get_logger(__name__)


def serve(config: Config) -> int:
    """Process until SIGTERM or SIGINT; gives the exit code, raises ExitError for bad ends."""
    log.configure(sys.stderr, "info")
    problems = property_problems(config)
    if problems:
        raise ConfigErrors(problems)
    directory = _held(config)
    clock = SystemClock()
    service = config.service
    nothing_yet = Status.starting(service.instance, service.group_id, datetime.now(UTC))
    board = StatusBoard(nothing_yet, time.monotonic)
    libraries = _libraries()
    metrics = Metrics(
        board,
        {"version": product_version(), **libraries},
        addresses_max=_ADDRESS_LABELS_MAX,
    )
    watch = Watch(config.service, clock, board, metrics)
    inbox = Inbox(_INBOX_DEPTH)
    clients = KafkaClients(config)
    worker = Worker(config, lambda: clients, RocksStores(directory.path), clock, watch, inbox)
    _stop_on_signals(worker)
    view = ServiceView(
        info=lambda: _info(config, clients, libraries),
        board=board,
        inbox=inbox,
        metrics=metrics,
        allowed_hosts=allowed_hosts(config.api.host, config.api.advertised_url),
        heartbeat_max_ms=_HEARTBEAT_MAX_MS,
        ask_timeout_s=_ASK_TIMEOUT_S,
    )
    try:
        server = serve_in_thread(create_app(view), config.api.host, config.api.port)
    except BindError as error:
        raise ExitError(ExitCode.USAGE, str(error)) from error
    _log.info("started", api=server.url, group_id=config.service.group_id)
    calm_garbage_collector()
    try:
        worker.run()
    finally:
        server.stop()
        directory.release()
    _log.info("stopped")
    return ExitCode.DONE


def _held(config: Config) -> Directory:
    service = config.service
    try:
        return Directory(service.state_dir, service.group_id, service.instance)
    except DirectoryHeldError as error:
        raise ExitError(
            ExitCode.FENCED,
            f"Another process runs as instance {service.instance} and holds {error}; "
            "stop it, or set service.instance.",
        ) from error
    except OSError as error:
        raise ExitError(
            ExitCode.CONTRADICTION,
            f"The state folder {service.state_dir} cannot be used ({error}); "
            "set service.state_dir to a folder that can be written.",
        ) from error


def _stop_on_signals(worker: Worker) -> None:
    def stop(_signal: int, _frame: FrameType | None) -> None:
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _libraries() -> dict[str, str]:
    return {
        "confluent_kafka": str(confluent_kafka.__version__),
        "librdkafka": confluent_kafka.libversion()[0],
    }


def _info(config: Config, clients: KafkaClients, libraries: dict[str, str]) -> Info:
    return Info(
        version=product_version(),
        python=platform.python_version(),
        libraries=libraries,
        cluster_id=clients.cluster.known_id,
        instance=config.service.instance,
        group_id=config.service.group_id,
    )
