"""Pod: a rendered pod of the chart, run as a process on this machine.

Its command, environment, mounts, user and read-only root are the manifest's; what a kubelet makes
of a volume is a folder here. Three things differ, for want of a network of its own: the ports, the
address by which other instances reach it, and where Python and the code lie. `code` is the image:
another folder is another version.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.broker.service import REPOSITORY, Service
from tests.helm.box import Box, Mount
from tests.helm.chart import Object, container, environment, only, pod_spec
from tests.support.waiting import eventually
from tools.broker.config import free_port
from tools.broker.embedded import LAUNCH
from tools.source_roots import python_path

Secrets = Mapping[tuple[str, str], str]


class Pod(Service):
    """One pod of a StatefulSet. Its volume stays when it ends; all else of it is recreated."""

    def __init__(
        self, objects: list[Object], folder: Path, ordinal: int = 0, secrets: Secrets | None = None
    ) -> None:
        file, log = folder / "ringfence.toml", folder / f"pod-{ordinal}.log"
        super().__init__(file, free_port(0), log)
        self.probes = Service(file, free_port(0), log)
        """The same at the port that is asked by its probes."""
        self.objects = objects
        self.code = REPOSITORY
        self.is_wanted = False
        """Whether its container is to be started again when it ends."""
        self.told_s = 0.0
        """When it was sent SIGTERM."""
        self.volume = folder / f"volume-{ordinal}"
        self._folder = folder
        self._ordinal = ordinal
        self._secrets = secrets or {}

    @property
    def grace_s(self) -> float:
        """How long it may take to end."""
        return float(pod_spec(self.objects)["terminationGracePeriodSeconds"])

    def start(
        self, victim: Mapping[str, str] | None = None, *, through: Sequence[str] = ()
    ) -> None:
        """Start its container; it is never a victim."""
        assert victim is None
        self.is_wanted = True
        one = container(self.objects)
        self._run([*through, *one["command"], *one["args"]])

    def run(self) -> str:
        """Run its container to its end, and return all that it printed."""
        one = container(self.objects)
        return self._printed([*one["command"], *one["args"]])

    def shell(self, script: str, *arguments: str) -> str:
        """Run a script in its container instead, and return all that it printed."""
        return self._printed(["sh", "-c", script, "sh", *arguments])

    def _printed(self, command: Sequence[str]) -> str:
        written = self.log.stat().st_size if self.log.exists() else 0
        self._run(command)
        self.wait()
        return self.log.read_bytes()[written:].decode()

    def delete(self, statuses: Sequence[int] = (0,)) -> float:
        """Delete the pod as a kubelet does, whose patience ends; return how long it took."""
        self.is_wanted = False
        asked_s = time.monotonic()
        hook = container(self.objects).get("lifecycle", {}).get("preStop", {})
        pause_s = hook.get("sleep", {}).get("seconds", 0)
        time.sleep(pause_s)  # noqa: TID251 - the chart's own pause, in which the pod serves on
        self.told_s = time.monotonic()
        self.signal(signal.SIGTERM)
        status = self.wait(self.grace_s - (time.monotonic() - asked_s))
        assert status in statuses, f"SIGTERM ended in status {status}\n{self.tail()}"
        return time.monotonic() - asked_s

    def wait_until_ready(self) -> None:
        """Until its readiness probe holds."""
        path = container(self.objects)["readinessProbe"]["httpGet"]["path"]
        eventually(lambda: self.probes.get(path)[0] == 200, self)

    def _run(self, command: Sequence[str]) -> None:
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, *self._box().command(), *command],
                env=self._environment(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _environment(self) -> dict[str, str]:
        return environment(self.objects, ordinal=self._ordinal) | {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "PYTHONPATH": python_path(self.code),
            "RINGFENCE_API__PORT": str(self.port),
            "RINGFENCE_API__PROBE_PORT": str(self.probes.port),
            "RINGFENCE_API__ADVERTISED_URL": f"http://127.0.0.1:{self.port}",
        }

    def _box(self) -> Box:
        spec, context = pod_spec(self.objects), container(self.objects)["securityContext"]
        assert context["readOnlyRootFilesystem"], "the box has no other root"
        assert not context["allowPrivilegeEscalation"], "the box gives no way to more rights"
        assert context["capabilities"] == {"drop": ["ALL"]}, "the box has no capabilities"
        here = Path(tempfile.mkdtemp(prefix=f"pod-{self._ordinal}-", dir=self._folder))
        (here / "root").mkdir()
        image = {REPOSITORY, self.code, Path(sys.prefix), Path(sys.base_prefix)}
        return Box(
            root=here / "root",
            user=spec["securityContext"]["runAsUser"],
            group=spec["securityContext"]["runAsGroup"],
            mounts=[
                *(Mount(folder, folder, read_only=True) for folder in image),
                *(self._mounted(mount, here) for mount in container(self.objects)["volumeMounts"]),
            ],
            work_folder=self._state_path,
        )

    @property
    def _state_path(self) -> Path:
        """Where the image starts its command: in the folder of the state."""
        (claim,) = only(self.objects, "StatefulSet")["spec"]["volumeClaimTemplates"]
        mounts = {each["name"]: each for each in container(self.objects)["volumeMounts"]}
        return Path(mounts[claim["metadata"]["name"]]["mountPath"])

    def _mounted(self, mount: Object, here: Path) -> Mount:
        """What a kubelet puts there."""
        assert "subPath" not in mount, "a part of a volume is not known here"
        path, folder = Path(mount["mountPath"]), here / mount["name"]
        volumes = {each["name"]: each for each in pod_spec(self.objects)["volumes"]}
        match volumes.get(mount["name"], {"claim": {}}):
            case {"claim": _}:
                self.volume.mkdir(exist_ok=True)
                return Mount(self.volume, path, read_only=False)
            case {"emptyDir": _}:
                folder.mkdir()
                return Mount(folder, path, read_only=mount.get("readOnly", False))
            case {"configMap": {"name": name}}:
                _write(folder, self._config_map(name))
            case {"secret": source}:
                _write(folder, self._secret(source))
            case volume:
                raise AssertionError(f"no kubelet here knows a volume {volume}")
        return Mount(folder, path, read_only=True)

    def _config_map(self, name: str) -> dict[str, str]:
        maps = [one for one in self.objects if one["kind"] == "ConfigMap"]
        (data,) = [one["data"] for one in maps if one["metadata"]["name"] == name]
        return dict(data)

    def _secret(self, source: Object) -> dict[str, str]:
        wanted = source["secretName"]
        keys = {key: value for (name, key), value in self._secrets.items() if name == wanted}
        items = source.get("items")
        return {item["path"]: keys[item["key"]] for item in items} if items else keys


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
