"""Session service: opens and ends sessions of publishers, for all instances.

An epoch is returned only when every deciding partition has committed it. From then on nothing of an
earlier session is accepted, and the numbers that are read are final for that earlier session.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from service.clock import Clock
from service.config.load import Config
from service.config.tasks import Hop
from service.kafka.clients import Clients
from service.kafka.topics import config_topic
from service.metadata.image import MetadataImage
from service.metadata.record import MetadataRecord
from service.metadata.sessions import SessionRecord, SessionTable, record_of
from service.metadata.settings import in_force
from service.metadata.settings_service import RevisionBarrier
from service.metadata.topic import MetadataWriter
from service.queries.errors import NameInUse, Unavailable

_PATIENCE_S: Final = 15.0
# A session may outlive an answer that never came: it is opened again, and counts anew.
_AGAIN: Final = "ask again; a session that was opened is opened anew."


class SessionService:
    """Blocks while it works; safe on any thread."""

    def __init__(self, config: Config, clients: Callable[[Hop], Clients], clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._applied = RevisionBarrier(clients, clock)
        self._writer = MetadataWriter(
            lambda: clients(Hop.INPUTS), config_topic(config.service.group_id), clock
        )

    def open(self, publisher: str, user: str) -> SessionRecord:
        """Give the name to this user; an earlier session of the same user is fenced.

        NameInUse where it is another's; Unavailable where broker or instances do not answer.
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
        """Give the name back; nothing is checked under it until the next session."""

        def change(settings: MetadataImage) -> MetadataRecord:
            last = _checked(settings.sessions, publisher, user)
            ended = SessionRecord(0, user, 0) if last is None else last
            return record_of(publisher, ended._replace(is_open=False))

        self._write(change)

    def _write(self, change: Callable[[MetadataImage], MetadataRecord]) -> None:
        configs: list[Config] = []

        def noted(settings: MetadataImage) -> MetadataRecord:
            configs.append(in_force(self._config, settings.documents)[0].config)
            return change(settings)

        try:
            revision = self._writer.write(noted)
            late = self._applied.wait(configs[-1], lambda m: m.revision >= revision, _PATIENCE_S)
        except KafkaException as error:
            sentence = f"The broker answered {error.args[0].name()}; {_AGAIN}"
            raise Unavailable(sentence) from error
        if late:
            names = ", ".join(late[:5])
            raise Unavailable(f"{len(late)} partitions do not follow: {names}; {_AGAIN}")


def _checked(sessions: SessionTable, publisher: str, user: str) -> SessionRecord | None:
    """The last session of a name that this user may have."""
    last = sessions.by_publisher.get(publisher)
    if last is not None and last.is_open and last.user != user:
        sentence = f"{publisher} has a session of another user; end that one, or take another name."
        raise NameInUse(sentence)
    return last
