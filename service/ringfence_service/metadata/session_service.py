"""Session service: opens and ends sessions of publishers, for all instances.

An epoch is returned only when every deciding partition has committed it. From then on no record of
an earlier session is accepted, so the sequence numbers read afterwards are final for that session.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.config.tasks import Hop
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.overlay import effective_settings
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.sessions import SessionRecord, SessionTable, record_of
from ringfence_service.metadata.settings_service import RevisionBarrier
from ringfence_service.metadata.topic import MetadataWriter, not_written
from ringfence_service.queries.errors import NameInUse, Unavailable

_PATIENCE_S: Final = 15.0
"""How long a publisher waits until every deciding partition has committed its session.

More than the default of `transaction_timeout_ms` (10 s), since a partition may have to end a
transaction before. Less than the 30 s after which the publisher gives up the request
(`ringfence/ringfence_client/publisher/session.py`).
"""
# A session may have been opened although its response was lost: the retry opens another one.
_AGAIN: Final = "try again; this opens a new session if one was opened."


class SessionService:
    """Opens and ends sessions. Its methods block; they are safe on any thread."""

    def __init__(self, config: Config, clients: Callable[[Hop], Clients], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._applied = RevisionBarrier(clients, clock)
        self._writer = MetadataWriter(
            lambda: clients(Hop.INPUTS), config_topic(config.service.group_id), clock
        )

    def open(self, publisher: str, user: str) -> SessionRecord:
        """Open a session of a publisher for a user, and fence the user's earlier session.

        Raise NameInUse if another user has an open session, and Unavailable if the broker or
        an instance does not respond.
        """
        opened: list[SessionRecord] = []

        def change(settings: MetadataImage) -> MetadataRecord:
            last = _checked(settings.sessions, publisher, user)
            epoch = 1 if last is None else last.epoch + 1
            opened.append(SessionRecord(epoch, user, self._clock.wall_ms()))
            return record_of(publisher, opened[-1])

        self._write(change)
        return opened[-1]

    def end(self, publisher: str, user: str) -> None:
        """End the session of a publisher; its records are not checked until the next one.

        Raise the same errors as `open`.
        """

        def change(settings: MetadataImage) -> MetadataRecord:
            last = _checked(settings.sessions, publisher, user)
            ended = SessionRecord(0, user, 0) if last is None else last
            return record_of(publisher, ended._replace(is_open=False))

        self._write(change)

    def _write(self, change: Callable[[MetadataImage], MetadataRecord]) -> None:
        configs: list[Config] = []

        def with_config(settings: MetadataImage) -> MetadataRecord:
            configs.append(effective_settings(self._config, settings.documents)[0].config)
            return change(settings)

        try:
            revision = self._writer.write(with_config)
            late = self._applied.wait(configs[-1], lambda m: m.revision >= revision, _PATIENCE_S)
        except KafkaException as error:
            raise not_written(error, _AGAIN) from error
        if late:
            names = ", ".join(late[:5])
            raise Unavailable(f"{len(late)} partitions have not applied it: {names}; {_AGAIN}")


def _checked(sessions: SessionTable, publisher: str, user: str) -> SessionRecord | None:
    """Return the last session of a publisher; NameInUse if another user has it open."""
    last = sessions.by_publisher.get(publisher)
    if last is not None and last.is_open and last.user != user:
        sentence = f"{publisher} has an open session of another user; end it, or use another name."
        raise NameInUse(sentence)
    return last
