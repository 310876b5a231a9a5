"""Presence: keeps this instance registered on the metadata topic while it runs.

The registration is compared with the topic and corrected. So an instance whose record was deleted,
or whose topic was created again, is registered again within seconds. An instance that another one
has not reached for a long time is removed by that instance.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaException

from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.instances import Registration, removal_of
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.peers.client import PeerClient
from ringfence_service.queries.status import ServicePhase

_LOOK_S: Final = 0.2
"""How often the registration is compared with what the watcher has read, which takes no request.

A stop is noticed this much later.
"""
_PAUSE_S: Final = 2.0
"""Mean pause after a registration was written, until the watcher has read it, or was not written.

It is random, since instances that start together would fence each other's writers again.
"""
GONE_S: Final = 300.0
"""How long no query may have reached an instance before another one removes it from the list.

It bounds how long a name without a process stays there. One that still runs registers again.
"""
_LEAVE_S: Final = 10.0
"""A broker responds late while other instances take over the partitions."""

_log = structlog.stdlib.get_logger(__name__)


class _UpToDateError(Exception):
    """The topic has the desired content already."""


class Presence:
    """Registers this instance and removes lost ones, on a daemon thread."""

    def __init__(
        self,
        registration: Callable[[], Registration],
        known: Callable[[], tuple[Registration, ...] | None],
        write: Callable[[Callable[[MetadataImage], MetadataRecord]], int],
        peers: PeerClient,
        *,
        phase: Callable[[], ServicePhase],
    ) -> None:
        """`known` returns the registered instances, once known; `write` is `MetadataWriter.write`.

        `phase` is that of this instance, which is registered once it has joined its group.
        """
        self._registration = registration
        self._known = known
        self._write = write
        self._peers = peers
        self._phase = phase
        self._is_registered = False
        self._stopping = threading.Event()
        self._leaves_s = float("inf")
        """When its removal began."""
        self._left = threading.Event()

    def start(self) -> None:
        """Start to keep the instance registered."""
        threading.Thread(target=self._run, name="ringfence-presence", daemon=True).start()

    def stop(self) -> None:
        """Remove the registration, within a time limit."""
        self._stopping.set()
        if self._is_registered:
            now_s = time.monotonic()
            self._left.wait(max(0.0, min(self._leaves_s, now_s) + _LEAVE_S - now_s))
            if self._is_registered:
                _log.warning("announcement_stays", for_s=GONE_S)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            known, phase = self._known(), self._phase()
            if phase == "stopping":
                break
            if known is None or phase == "starting":
                continue
            own = self._registration()
            if own not in known:
                self._is_registered |= self._written(partial(_record, own))
                self._stopping.wait(_PAUSE_S * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            for lost in self._peers.lost_for(GONE_S):
                self._remove(lost)
        self._leave()

    def _remove(self, lost: Registration) -> None:
        def removal(settings: MetadataImage) -> MetadataRecord:
            if settings.instances.get(lost.name) != lost:
                raise _UpToDateError
            return removal_of(lost.name)

        if self._written(removal):
            _log.warning("peer_taken_away", peer=lost.name, url=lost.url)
        self._peers.forget(lost.name)

    def _leave(self) -> None:
        self._leaves_s = time.monotonic()
        deadline_s = self._leaves_s + _LEAVE_S
        own = self._registration()

        def removal(settings: MetadataImage) -> MetadataRecord:
            if settings.instances.get(own.name) != own:
                raise _UpToDateError  # another process has registered under our name
            return removal_of(own.name)

        while self._is_registered and time.monotonic() < deadline_s:
            self._is_registered = not self._written(removal)
        self._left.set()

    def _written(self, change: Callable[[MetadataImage], MetadataRecord]) -> bool:
        """Write, unless the topic is up to date; return False if another writer interfered."""
        try:
            self._write(change)
        except _UpToDateError:
            return True
        except KafkaException as error:
            _log.debug("announcement_not_written", cause=error.args[0].str())
            time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
            return False
        return True


def _record(own: Registration, _settings: MetadataImage) -> MetadataRecord:
    return own.record
