"""Presence: keeps this instance registered on the metadata topic while it runs.

The registration is compared with the facts and corrected. So an instance whose record was deleted,
or whose topic was created again, is registered again within a second; and an instance that nobody
has reached for long is removed by whoever finds that.
"""

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from confluent_kafka import KafkaException

from service.metadata.image import MetadataImage
from service.metadata.instances import Registration, removal_of
from service.metadata.record import MetadataRecord
from service.peers.client import PeerClient
from service.queries.status import ServicePhase

_LOOK_S: Final = 0.2
_PAUSE_S: Final = 2.0
GONE_S: Final = 300.0
_LEAVE_S: Final = 10.0
"""A broker that is asked by all who take over answers late."""

_log = structlog.stdlib.get_logger(__name__)


class _UpToDateError(Exception):
    """There is nothing to write."""


class Presence:
    """See the module; all of it on a daemon thread."""

    def __init__(
        self,
        announced: Callable[[], Registration],
        known: Callable[[], tuple[Registration, ...] | None],
        write: Callable[[Callable[[MetadataImage], MetadataRecord]], int],
        peers: PeerClient,
        *,
        phase: Callable[[], ServicePhase],
    ) -> None:
        """`known` are those that are announced, if that is known yet; `write` is a `Writer`'s.

        `phase` is that of the own instance: it is announced once it has joined its group.
        """
        self._announced = announced
        self._known = known
        self._write = write
        self._peers = peers
        self._phase = phase
        self._has_announced = False
        self._stopping = threading.Event()
        self._leaves_s = float("inf")
        """Since when it is being taken away."""
        self._left = threading.Event()

    def start(self) -> None:
        """Announce from now on."""
        threading.Thread(target=self._run, name="ringfence-presence", daemon=True).start()

    def stop(self) -> None:
        """Take the announcement away, within a limit."""
        self._stopping.set()
        if self._has_announced:
            now_s = time.monotonic()
            self._left.wait(max(0.0, min(self._leaves_s, now_s) + _LEAVE_S - now_s))
            if self._has_announced:
                _log.warning("announcement_stays", for_s=GONE_S)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_S):
            known, phase = self._known(), self._phase()
            if phase == "stopping":
                break
            if known is None or phase == "starting":
                continue
            mine = self._announced()
            if mine not in known:
                self._has_announced |= self._written(partial(_record, mine))
                self._stopping.wait(_PAUSE_S * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
            for lost in self._peers.lost_for(GONE_S):
                self._take_away(lost)
        self._leave()

    def _take_away(self, lost: Registration) -> None:
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
        mine = self._announced()

        def removal(settings: MetadataImage) -> MetadataRecord:
            if settings.instances.get(mine.name) != mine:
                raise _UpToDateError  # another of our name is there already
            return removal_of(mine.name)

        while self._has_announced and time.monotonic() < deadline_s:
            self._has_announced = not self._written(removal)
        self._left.set()

    def _written(self, change: Callable[[MetadataImage], MetadataRecord]) -> bool:
        """Whether it was written, or need not be; who writes at the same time may come first."""
        try:
            self._write(change)
        except _UpToDateError:
            return True
        except KafkaException as error:
            _log.debug("announcement_not_written", cause=error.args[0].str())
            time.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
            return False
        return True


def _record(mine: Registration, _settings: MetadataImage) -> MetadataRecord:
    return mine.record
