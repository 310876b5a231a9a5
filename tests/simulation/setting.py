"""Setting: what an administrator changes while everything goes wrong, and what held by then."""

import contextlib
import random
from collections.abc import Callable
from typing import cast

from ringfence_service.config.tasks import Task
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.settings import Keys, SettingsOverlay
from ringfence_service.metadata.settings_change import SettingsSnapshot
from ringfence_service.metadata.settings_service import SettingsService
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.queries.errors import Unavailable
from ringfence_state.offset_metadata import decode
from tests.fakes.clients import FakeClients
from tests.fakes.group import Committed
from tests.fakes.log import FakeCluster
from tests.simulation.instance import FakeClock
from tests.simulation.scenario import DEFAULT_SIZE, GROUP, LATE, SIZES_OF_RINGS, Scenario


class Nobody:
    """In place of the thread that reads along: nobody asks."""

    def wait(self, _revision: int, _timeout_s: float) -> None:
        """See `MetadataWatcher.wait`."""


class Setting:
    """The administrator, with the real editor."""

    def __init__(self, case: Scenario, log: FakeCluster) -> None:
        self._case = case
        self._log = log
        self._chance = random.Random(case.seed + 3)
        self._written: list[tuple[int, SettingsOverlay]] = [(0, SettingsOverlay())]
        self._editor = SettingsService(
            case.config("admin", 0),
            lambda hop: FakeClients(log, GROUP, "admin", part=Task(0, hop)),
            cast("MetadataWatcher", Nobody()),
            FakeClock(log),
        )

    def perhaps(self) -> None:
        """Change something now and then."""
        often = 0.2 if self._case.switches else 0.08
        if self._case.is_set and self._chance.random() < often:
            changes = [self._resized, self._resized, self._routed, self._paused]
            if self._case.switches:
                changes += 3 * [self._switched]
            self._edit(self._chance.choice(changes))

    def settle(self) -> None:
        """Have everything read."""
        if self._case.is_set:
            self._edit(lambda overlay: self._late(overlay)._replace(paused=()))

    def overlay_at(self, revision: int) -> SettingsOverlay:
        """Return what was set at a revision."""
        return [overlay for written, overlay in self._written if written <= revision][-1]

    def is_settled(self, committed: Committed) -> bool:
        """Whether the caches of a partition follow the document by which it decides."""
        metadata = decode(committed.metadata)
        if metadata is None:
            return True  # nothing was decided
        newest = max(written for written, _ in self._written if written <= metadata.revision)
        return metadata.applied == newest

    def sizes_at(self, life: int, revision: int) -> dict[str, int]:
        """Return the ring sizes of a life at a revision."""
        sizes = dict(self._case.capacity_of(life))
        for address, keys in self.overlay_at(revision).addresses.items():
            given = None if keys is None else keys["id_cache_size"]
            sizes[address] = given if isinstance(given, int) else DEFAULT_SIZE
        return sizes

    def strategies_at(self, revision: int) -> dict[str, str]:
        """Return how each address remembered at a revision."""
        addresses = self.overlay_at(revision).addresses
        return {
            name: str((addresses.get(name) or {}).get("strategy", self._case.strategy))
            for name in self._case.addresses
        }

    def topics_at(self, revision: int) -> set[str]:
        """Return the inputs that had a route at a revision."""
        late = {LATE} if LATE in self.overlay_at(revision).routes else set()
        return {*self._case.topics, *late}

    def _edit(self, change: Callable[[SettingsOverlay], SettingsOverlay]) -> None:
        if config_topic(GROUP) not in self._log.logs:
            return

        def changed(standing: SettingsSnapshot) -> SettingsOverlay:
            return change(standing.overlay)

        with contextlib.suppress(Unavailable):
            edited = self._editor.edit(changed, actor="", reason="")
            if edited.revision > self._written[-1][0]:
                self._written.append((edited.revision, edited.overlay))

    def _resized(self, overlay: SettingsOverlay) -> SettingsOverlay:
        address = self._chance.choice(self._case.addresses)
        size: Keys | None = {"id_cache_size": self._chance.choice(SIZES_OF_RINGS)}
        if self._chance.random() < 0.2:
            size = None
        return overlay.with_address(address, size, in_file=True)

    def _switched(self, overlay: SettingsOverlay) -> SettingsOverlay:
        address = self._chance.choice(self._case.addresses)
        keys = dict(overlay.addresses.get(address) or {"id_cache_size": max(SIZES_OF_RINGS)})
        if keys.pop("strategy", None) is None:
            keys["strategy"] = "window"
        return overlay.with_address(address, keys, in_file=True)

    def _routed(self, overlay: SettingsOverlay) -> SettingsOverlay:
        if LATE not in overlay.routes:
            return self._late(overlay)
        return overlay.with_route(LATE, None, in_file=False)

    def _late(self, overlay: SettingsOverlay) -> SettingsOverlay:
        return overlay.with_route(LATE, self._case.late_route, in_file=False)

    def _paused(self, overlay: SettingsOverlay) -> SettingsOverlay:
        name = self._chance.choice(("route", LATE) if LATE in overlay.routes else ("route",))
        return overlay.with_pause(name, paused=name not in overlay.paused)
