"""API assembly: the admin API over a supervisor and its workers."""

import platform
from pathlib import Path
from typing import Final

import confluent_kafka

from api.app import ALL
from api.hosts import allowed_hosts
from api.ports import ServiceView
from api.restored import require_restored
from api.server import ServerHandle, listening, opened
from service.clock import SystemClock, product_version
from service.config.load import Config
from service.config.tasks import Hop, Part
from service.dead_letters.browser import LetterBox
from service.dead_letters.redrive_coordinator import Coordinator
from service.dead_letters.redrive_service import Orders
from service.kafka.clients import KafkaClients
from service.kafka.topics import config_topic
from service.metadata.audit_log import AuditTopic
from service.metadata.session_service import Registry
from service.metadata.settings_service import Editor
from service.metadata.watcher import Bulletin
from service.peers.membership import Fleet
from service.queries.status import Info
from service.supervisor.router import CrewDesk, CrewMetrics
from service.supervisor.supervisor import ADDRESS_LABELS_MAX, Supervisor
from service.telemetry.metrics import Metrics

_ASK_TIMEOUT_S: Final = 5.0
_REPLACED_S: Final = 30.0
"""How long past its limit a silent loop may go on before `/livez` tells of it."""

_LIBRARIES: Final = {
    "confluent_kafka": str(confluent_kafka.__version__),
    "librdkafka": confluent_kafka.libversion()[0],
}


def serve_api(config: Config, supervisor: Supervisor, hang_limit_s: float) -> ServerHandle:
    """Serve it on a thread; ExitError where it cannot listen."""
    version, metrics = product_version(), _metrics(config, supervisor)

    def clients(hop: Hop = Hop.INPUTS) -> KafkaClients:
        return KafkaClients(config, Part(0, hop))

    clock = SystemClock()
    topic = config_topic(config.service.group_id)
    audit = AuditTopic(
        clients().audit_producer,
        topic,
        clock,
        config.api.audit_records_max,
        lambda: bulletin.is_level,
    )
    bulletin = Bulletin(clients, topic, clock, audit.take)
    editor = Editor(config, clients, bulletin, clock)
    crew = CrewDesk(editor.config, supervisor.members, supervisor.read)
    fleet = Fleet(
        editor.config, version, bulletin, crew, supervisor.read, clients, clock, require_restored
    )
    access = opened(config.api)
    shared = clients()
    box = LetterBox(editor.config, lambda: shared, clock)
    coordinator = Coordinator(
        editor.config, lambda: shared, fleet.desk, supervisor.read, bulletin, clock
    )
    view = ServiceView(
        info=lambda: Info(
            version=version,
            python=platform.python_version(),
            libraries=_LIBRARIES,
            cluster_id=supervisor.cluster_id,
            instance=config.service.instance,
            group_id=config.service.group_id,
            config_revision=supervisor.read().config_revision,
        ),
        board=supervisor,
        inbox=fleet.desk,
        metrics=CrewMetrics(metrics, supervisor.members),
        allowed_hosts=allowed_hosts(config.api),
        heartbeat_max_ms=round((hang_limit_s + _REPLACED_S) * 1000),
        ask_timeout_s=_ASK_TIMEOUT_S,
        access=access,
        audit=audit,
        body_bytes_max=config.api.body_bytes_max,
        registry=Registry(config, clients, clock),
        settings=editor,
        workers=lambda: tuple(member.status() for member in supervisor.members),
        letters=box,
        redrives=Orders(editor.config, lambda: shared, box, coordinator, clock),
        fleet=fleet.desk,
        hearing=fleet.hearing,
    )
    server = listening(view, ALL, config.api)
    bulletin.start()
    coordinator.start()
    fleet.start(server.url)
    server.then(coordinator.stop)
    server.then(fleet.stop)
    server.then(bulletin.stop)
    return server


def _metrics(config: Config, supervisor: Supervisor) -> Metrics:
    """Of the supervisor itself: the board, its disk, its children and its certificate."""
    versions = {"version": product_version(), **_LIBRARIES}
    metrics = Metrics(supervisor, versions, addresses_max=ADDRESS_LABELS_MAX)
    metrics.disk(config.service.state_dir)
    if config.api.tls_cert_file:
        metrics.certificate(Path(config.api.tls_cert_file))
    for member in supervisor.members:
        metrics.has_worker(member.part.worker, member.part.hop.value)
    supervisor.counts_restarts_by(
        lambda part: metrics.worker_restarted(part.worker, part.hop.value)
    )
    return metrics
