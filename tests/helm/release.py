"""Release: the pods that the chart makes for a world's topics, started, rolled and lost.

It does what a StatefulSet and a kubelet do, in their order: a rolling update goes from the highest
ordinal down and waits until each pod is ready; a container that ends by itself is started again; a
pod that is scaled away takes its volume along.
"""

import json
import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Final

from tests.broker.workload import CAPACITY, PARTITIONS
from tests.broker.world import World
from tests.helm.chart import MINIMAL, Helm, Object, only
from tests.helm.pod import Pod, Secrets
from tests.support.waiting import eventually

CONTRADICTION: Final = 5
_SECRET: Final = ("kafka-user", "password")


def rendered(helm: Helm, world: World, replicas: int) -> list[Object]:
    """The objects of a release that reads a world's input."""
    client = dict(world.service_client)
    password = client.pop("sasl.password", None)
    config = {
        "kafka": client,
        "service": {
            "group_id": world.group,
            "batch_records_max": 200,
            "session_timeout_ms": 6000,
            "transaction_timeout_ms": 3000,
        },
        "routes": [
            {
                "inputs": world.inputs,
                "scope": world.manner.scope,
                "address": "{header:addr}",
                "output": world.output,
            }
        ],
        "addresses": {"#": {"id_cache_size": CAPACITY}},
    }
    sasl = {"existingSecret": _SECRET[0] if password else ""}
    return helm.render(MINIMAL, {"config": config, "kafka": {"sasl": sasl}, "replicas": replicas})


class Release:
    """Up to so many pods; none is started."""

    def __init__(self, helm: Helm, world: World, replicas: int = 1) -> None:
        self.objects = rendered(helm, world, replicas)
        self.secrets: Secrets = {_SECRET: world.service_client.get("sasl.password", "")}
        self.pods = [
            world.adopted(Pod(self.objects, world.folder, ordinal, self.secrets))
            for ordinal in range(replicas)
        ]
        self.fallen: list[int] = []
        """With which codes containers ended by themselves."""

    def scale(self, count: int) -> None:
        """Have so many pods, and wait until all are ready."""
        for pod in self.pods[:count]:
            if not pod.is_wanted:
                pod.start()
        for pod in reversed(self.pods[count:]):
            if pod.is_wanted:
                pod.delete()
                self._scaled_away(pod)
        for pod in self.pods[:count]:
            self._wait(pod)

    def roll(self, code: Path, version: str) -> None:
        """Replace one pod after the other by one of another version."""
        for pod in reversed(self.pods):
            self.replace(pod, code)
            self._wait(pod)
            eventually(partial(_is_of, pod, version), pod)

    def replace(self, pod: Pod, code: Path) -> None:
        """Replace a pod. One that falls again and again may be at any point of that."""
        self._tend()
        pod.delete((0, CONTRADICTION, -signal.SIGTERM) if self.fallen else (0, CONTRADICTION))
        if pod.wait() == CONTRADICTION:
            self.fallen.append(CONTRADICTION)
        pod.code = code
        pod.start()

    def lose(self, pod: Pod, volume: Path | None) -> None:
        """Lose the node of a pod; it comes back on another, with its volume or an empty one."""
        pod.signal(signal.SIGKILL)
        pod.wait()
        if volume is None:
            shutil.rmtree(pod.volume)
        else:
            pod.volume = Path(shutil.move(pod.volume, volume))
        pod.start()
        self._wait(pod)

    def leave(self) -> Pod:
        """End all of them, the first one last, when all partitions are its own."""
        first, *others = self.pods
        for pod in reversed(others):
            if pod.is_wanted:
                pod.delete()
        first.wait_ready(PARTITIONS)
        first.delete()
        return first

    def _scaled_away(self, pod: Pod) -> None:
        spec = only(self.objects, "StatefulSet")["spec"]
        assert spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete"
        shutil.rmtree(pod.volume)

    def _wait(self, pod: Pod) -> None:
        def is_ready() -> bool:
            self._tend()
            return pod.get("/readyz")[0] == 200

        eventually(is_ready, pod)

    def _tend(self) -> None:
        for pod in self.pods:
            if pod.is_wanted and pod.ended:
                self.fallen.append(pod.wait())
                pod.start()


def _is_of(pod: Pod, version: str) -> bool:
    return bool(json.loads(pod.get("/v1/info")[1])["version"] == version)
