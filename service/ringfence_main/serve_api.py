"""API assembly: the admin API over a supervisor and its workers."""

import platform
from pathlib import Path
from typing import Final

import confluent_kafka

from ringfence_api.app import ALL
from ringfence_api.hosts import allowed_hosts
from ringfence_api.ports import ServiceView
from ringfence_api.restored import require_restored
from ringfence_api.server import ServerHandle, listening, opened
from ringfence_service.clock import SystemClock, product_version
from ringfence_service.config.model import Config
from ringfence_service.config.tasks import Hop, Task
from ringfence_service.dead_letters.browser import DeadLetterBrowser
from ringfence_service.dead_letters.redrive_coordinator import RedriveCoordinator
from ringfence_service.dead_letters.redrive_service import RedriveService
from ringfence_service.kafka.clients import KafkaClients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.listeners import Listeners
from ringfence_service.metadata.audit_log import AuditTopic
from ringfence_service.metadata.session_service import SessionService
from ringfence_service.metadata.settings_service import SettingsService
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.peers.membership import GroupMembership
from ringfence_service.queries.status import ServiceInfo
from ringfence_service.schemas.documents import connect
from ringfence_service.supervisor.router import SupervisorMetrics, WorkerRouter
from ringfence_service.supervisor.supervisor import ADDRESS_LABELS_MAX, Supervisor
from ringfence_service.telemetry.metrics import Metrics

_ASK_TIMEOUT_S: Final = 5.0
"""How long a request to the API waits for a loop, which answers between its batches.

Less than `RESPONSE_S` of the command line, whose user then reads why there is no answer.
"""
_REPLACED_S: Final = 30.0
"""How long past the hang limit a loop may be silent before `/livez` fails."""

_LIBRARIES: Final = {
    "confluent_kafka": str(confluent_kafka.__version__),
    "librdkafka": confluent_kafka.libversion()[0],
}


def serve_api(
    config: Config, supervisor: Supervisor, listeners: Listeners, hang_limit_s: float
) -> ServerHandle:
    """Build and start the API on a thread, on sockets that are bound; ExitError if it cannot."""
    version, metrics = product_version(), _metrics(config, supervisor)
    connect(config.schema_registry)  # a redrive reads addresses

    def clients(hop: Hop = Hop.INPUTS) -> KafkaClients:
        return KafkaClients(config, Task(0, hop))

    clock = SystemClock()
    topic = config_topic(config.service.group_id)
    audit = AuditTopic(
        clients().audit_producer,
        topic,
        clock,
        config.api.audit_records_max,
        lambda: metadata_watcher.has_caught_up,
    )
    metadata_watcher = MetadataWatcher(clients, topic, clock, audit.take)
    settings_service = SettingsService(config, clients, metadata_watcher, clock)
    workers = WorkerRouter(supervisor.handles, supervisor.read)
    membership = GroupMembership(
        settings_service.config,
        version,
        metadata_watcher,
        workers,
        supervisor.read,
        clients,
        clock,
        require_restored,
    )
    access = opened(config.api)
    shared = clients()
    browser = DeadLetterBrowser(settings_service.config, lambda: shared, clock)
    coordinator = RedriveCoordinator(
        settings_service.config,
        lambda: shared,
        membership.query_service,
        supervisor.read,
        metadata_watcher,
        clock,
    )
    view = ServiceView(
        info=lambda: ServiceInfo(
            version=version,
            python=platform.python_version(),
            libraries=_LIBRARIES,
            cluster_id=supervisor.cluster_id,
            instance=config.service.instance,
            group_id=config.service.group_id,
            config_revision=supervisor.read().config_revision,
            settings_managed_by=config.service.managed_by,
        ).with_fast_path(handle.status() for handle in supervisor.handles),
        board=supervisor,
        inbox=membership.query_service,
        metrics=SupervisorMetrics(metrics, supervisor.handles),
        allowed_hosts=allowed_hosts(config.api),
        heartbeat_max_ms=round((hang_limit_s + _REPLACED_S) * 1000),
        ask_timeout_s=_ASK_TIMEOUT_S,
        access=access,
        audit=audit,
        body_bytes_max=config.api.body_bytes_max,
        registry=SessionService(config, clients, clock),
        settings=settings_service,
        workers=lambda: tuple(handle.status() for handle in supervisor.handles),
        letters=browser,
        redrives=RedriveService(
            settings_service.config, lambda: shared, browser, coordinator, clock
        ),
        fleet=membership.query_service,
        peer_server=membership.peer_server,
    )
    key = membership.peer_server.key
    for file in (access.tokens_file, None if key is None else key.file):
        if file is not None:
            metrics.watched_file(file.name, file.is_refused)
    server = listening(view, ALL, config.api, listeners)
    metadata_watcher.start()
    coordinator.start()
    membership.start(server.url)
    server.then(coordinator.stop)
    server.then(membership.stop)
    server.then(metadata_watcher.stop)
    return server


def _metrics(config: Config, supervisor: Supervisor) -> Metrics:
    """Return the metrics of the supervisor: status, disk, workers and TLS certificate."""
    versions = {"version": product_version(), **_LIBRARIES}
    metrics = Metrics(supervisor, versions, addresses_max=ADDRESS_LABELS_MAX)
    metrics.disk(config.service.state_dir)
    if config.api.tls_cert_file:
        metrics.certificate(Path(config.api.tls_cert_file))
    for handle in supervisor.handles:
        metrics.has_worker(handle.task.worker, handle.task.hop.value)
    supervisor.on_restart(lambda task: metrics.worker_restarted(task.worker, task.hop.value))
    return metrics
