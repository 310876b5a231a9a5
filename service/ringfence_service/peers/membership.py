"""Membership: assembles the parts that make an instance a member of the group."""

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import structlog

from ringfence_service.clock import Clock
from ringfence_service.config.model import ApiSettings, Config
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.instances import Registration
from ringfence_service.metadata.topic import MetadataWriter
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.peers.client import PeerClient
from ringfence_service.peers.presence import Presence
from ringfence_service.peers.protocol import StatusReply
from ringfence_service.peers.router import PeerRouter
from ringfence_service.peers.server import PeerServer
from ringfence_service.peers.signing import PeerKey
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.status import ServiceStatus

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - they are recognised, not bound

_log = structlog.stdlib.get_logger(__name__)


class GroupMembership:
    """Connects an instance with the others: its presence, and its peer router and server."""

    def __init__(
        self,
        config: Callable[[], Config],
        version: str,
        metadata_watcher: MetadataWatcher,
        workers: QueryService,
        status: Callable[[], ServiceStatus],
        clients: Callable[[], Clients],
        clock: Clock,
        check: Callable[[ServiceStatus], None],
    ) -> None:
        """`config` returns the effective configuration.

        `workers` and `status` are those of this instance alone; `check` raises if its state is not
        restored.
        """
        service, api = config().service, config().api
        key = _key(api.peer_token_file)
        self._registration = Registration(
            name=service.instance,
            url=api.advertised_url.rstrip("/"),
            started_at_ms=round(datetime.now(UTC).timestamp() * 1000),
            version=version,
        )
        peers = PeerClient(
            service.instance,
            lambda: metadata_watcher.instances or (),
            key,
            lambda: _tls(api),
        )

        def status_reply() -> StatusReply:
            return StatusReply(version, metadata_watcher.revision, status())

        self.query_service = PeerRouter(
            config, workers, status_reply, peers, lambda: self._registration
        )
        self.peer_server = PeerServer(workers, status_reply, check, key)
        self._presence = Presence(
            lambda: self._registration,
            lambda: metadata_watcher.instances,
            MetadataWriter(clients, config_topic(service.group_id), clock).write,
            peers,
            phase=lambda: status().phase,
        )

    def start(self, url: str) -> None:
        """Register the instance once it has joined its group; its API listens at `url`."""
        if not self._registration.url and urlsplit(url).hostname not in _ANY_ADDRESS:
            self._registration = self._registration._replace(url=url)
        if not self._registration.url:
            _log.warning(
                "peers_cannot_reach_us",
                reason=f"{url} has no host that others can reach; set api.advertised_url",
                machine=socket.gethostname(),
            )
        self._presence.start()

    def stop(self) -> None:
        """Remove the registration."""
        self._presence.stop()


def _key(path: str) -> PeerKey | None:
    try:
        return PeerKey(path) if path else None
    except (OSError, ValueError) as error:
        sentence = f"{path} of api.peer_token_file cannot be used ({error}); run `ringfence check`."
        raise ExitError(ExitCode.USAGE, sentence) from error


def _tls(api: ApiSettings) -> ssl.SSLContext:
    """Return the TLS client settings; with a client CA, the API's own certificate is presented."""
    context = ssl.create_default_context()
    if api.tls_client_ca_file:
        context.load_verify_locations(api.tls_client_ca_file)
        context.load_cert_chain(api.tls_cert_file, api.tls_key_file)
    return context
