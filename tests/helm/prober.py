"""Prober: asks a pod what its kubelet asks, but all the time, and keeps every answer."""

import time
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

from tests.broker.meanwhile import Meanwhile
from tests.helm.chart import container
from tests.helm.pod import Pod

STARTUP: Final = "startupProbe"
LIVENESS: Final = "livenessProbe"
READINESS: Final = "readinessProbe"
PROBES: Final = (STARTUP, LIVENESS, READINESS)
ASKED_EVERY_S: Final = 0.05


class Answer(NamedTuple):
    """The response to a probe. Status 0: none, or too late."""

    at_s: float
    took_s: float
    status: int
    body: str


class Prober(Meanwhile):
    """Asks each probe of the manifest as often as it can, each on a thread; a context manager."""

    def __init__(self, pod: Pod) -> None:
        super().__init__(*(partial(self._ask, name) for name in PROBES))
        self._answers: dict[str, list[Answer]] = {name: [] for name in PROBES}
        self._pod = pod

    def answers(self, probe: str, since_s: float = 0.0) -> list[Answer]:
        """All that was answered to what was asked from then on."""
        return [each for each in self._answers[probe] if each.at_s >= since_s]

    def course(self, probe: str, since_s: float = 0.0) -> list[int]:
        """The statuses one after the other, each once, without answers that came too late."""
        limit_s = container(self._pod.objects)[probe]["timeoutSeconds"]
        asked = self.answers(probe, since_s)
        told = [a.status for a in asked if a.status or a.took_s < limit_s]
        return [status for status, _ in groupby(told)]

    def slowest_s(self) -> float:
        """The answer that took longest, of those that came."""
        return max(a.took_s for name in PROBES for a in self.answers(name) if a.status)

    def first(self, probe: str, status: int, since_s: float = 0.0) -> Answer:
        """The first answer with this status."""
        return next(each for each in self.answers(probe, since_s) if each.status == status)

    def allowed_s(self, probe: str) -> float:
        """How long the manifest lets a probe fail before something is done about it."""
        told = container(self._pod.objects)[probe]
        return float(told["periodSeconds"] * told["failureThreshold"])

    def may_miss(self, probe: str) -> int:
        """With how many failures in a row the manifest has something done."""
        return int(container(self._pod.objects)[probe]["failureThreshold"])

    def _ask(self, name: str) -> None:
        probe = container(self._pod.objects)[name]
        while not self._ends.wait(ASKED_EVERY_S):
            at_s = time.monotonic()
            status, body = self._pod.probes.get(probe["httpGet"]["path"], probe["timeoutSeconds"])
            self._answers[name].append(Answer(at_s, time.monotonic() - at_s, status, body))
