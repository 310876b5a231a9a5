"""Metadata watcher: a thread that follows the metadata topic for the other parts of the process.

It keeps the settings documents, the registered instances and the redrive jobs, and passes audit
entries on. One consumer serves all of them, because each consumer costs some ten threads.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.kafka.clients import Clients
from ringfence_service.metadata.instances import Registration
from ringfence_service.metadata.layout import Topology
from ringfence_service.metadata.redrive_job import RedriveJob
from ringfence_service.metadata.settings import SettingsHistory
from ringfence_service.metadata.topic import MetadataReader, OnRecord
from ringfence_service.queries.errors import Unavailable

_POLL_S: Final = 0.1
"""How long one poll waits for a full batch: other threads see a new record this much later."""
_PAUSE_S: Final = 1.0
"""Pause after an error: each attempt has a new consumer and reads the topic from its beginning."""
_STOP_S: Final = 2.0
"""How long a stop waits for the thread: more than a poll or a pause takes.

A thread in a request that the broker does not answer is left behind.
"""

_log = structlog.stdlib.get_logger(__name__)


class MetadataWatcher:
    """Holds the newest state of the topic. Any thread may read it; only its own thread writes."""

    def __init__(
        self, clients: Callable[[], Clients], topic: str, clock: Clock, audit: OnRecord
    ) -> None:
        """`audit` receives the audit entries, and all of them again after an error."""
        self._clients = clients
        self._topic = topic
        self._clock = clock
        self._audit = audit
        self._changed = threading.Condition()
        self._documents: SettingsHistory | None = None
        self._instances: tuple[Registration, ...] | None = None
        self._redrives: Mapping[str, RedriveJob] | None = None
        self.layout: Topology | None = None
        """The topology, as far as it is known."""
        self.has_caught_up = False
        """Whether the end was reached, and nothing has failed since."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ringfence-metadata", daemon=True)

    def start(self) -> None:
        """Start to follow the topic, on a daemon thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the thread: no client may be in use when the process ends."""
        self._stopping = True
        self._thread.join(_STOP_S)

    def read(self) -> SettingsHistory:
        """Return the settings documents; Unavailable before the end was reached once."""
        if self._documents is None:
            raise Unavailable("The settings have not been read yet; try again.")
        return self._documents

    @property
    def instances(self) -> tuple[Registration, ...] | None:
        """The registered instances; None before the end of the topic was reached once."""
        return self._instances

    @property
    def redrives(self) -> Mapping[str, RedriveJob] | None:
        """The redrive jobs by id; None before the end of the topic was reached once."""
        return self._redrives

    def wait(self, revision: int, timeout_s: float) -> None:
        """Wait until the document of a revision is read, at most for the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self.revision >= revision, timeout_s)

    @property
    def revision(self) -> int:
        """The revision of the newest document; 0 before the first."""
        return 0 if self._documents is None else self._documents.revision

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._follow()
            except KafkaException as error:  # the workers log what is wrong
                _log.debug("config_topic_not_followed", cause=error.args[0].str())
            self._clock.sleep(_PAUSE_S)

    def _follow(self) -> None:
        reader = MetadataReader(self._clients(), self._topic, self._clock, self._audit)
        try:
            reader.catch_up()
            self.has_caught_up = True
            while not self._stopping:
                self._instances = reader.settings.instances.all
                self._redrives = dict(reader.settings.redrives.by_id)
                self.layout = reader.settings.layout
                documents = reader.settings.documents
                if self._documents is None or documents.revision != self.revision:
                    with self._changed:
                        self._documents = documents.copy()
                        self._changed.notify_all()
                reader.poll(_POLL_S)
        finally:
            self.has_caught_up = False
            reader.close()
