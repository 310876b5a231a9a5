"""The inside of a pod, for what is run in it: command, environment, a folder for each mount.

The container's paths are those folders, in its configuration and in whatever is typed. Changed
beside that are the ports, because this machine may have another 8080.
"""

import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.broker.service import REPOSITORY
from tests.helm.chart import Object, config_toml, container, environment, pod_spec
from tools.source_roots import python_path

_SCRIPT = """#!{python}
import os, re, sys
folders = {folders!r}
words = [re.sub({paths!r}, lambda found: folders[found[1]], word) for word in sys.argv[1:]]
os.execve({program!r}, [{program!r}, *words], {variables!r})
"""


class Inside(NamedTuple):
    """Made from what a cluster has."""

    folders: Mapping[str, str]
    variables: Mapping[str, str]
    program: str
    command: tuple[str, ...]

    @classmethod
    def of(cls, objects: list[Object], root: Path, port: int) -> "Inside":
        """Furnish the folders of pod 0 below a root."""
        paths = [mount["mountPath"] for mount in container(objects)["volumeMounts"]]
        folders = {path: str(root / path.strip("/").replace("/", "-")) for path in paths}
        for folder in folders.values():
            Path(folder).mkdir(parents=True)
        variables = environment(objects) | {
            "PATH": f"{Path(sys.executable).parent}:{os.defpath}",
            "PYTHONPATH": python_path(REPOSITORY),
            "TMPDIR": folders["/tmp"],  # noqa: S108  # the mount's name in the container
            "RINGFENCE_API__PORT": str(port),
            "RINGFENCE_API__PROBE_PORT": "0",
            "RINGFENCE_API__ADVERTISED_URL": f"http://127.0.0.1:{port}",
        }
        one = container(objects)
        program = str(one["command"][0])
        words = [*one["command"][1:], *one["args"]]
        found = shutil.which(program, path=variables["PATH"])
        assert found, f"{program} is not beside {sys.executable}: pip install --editable ."
        inside = cls(folders, variables, found, tuple(words))
        file = Path(folders["/etc/ringfence"]) / "ringfence.toml"
        file.write_text(inside.here(config_toml(objects)), encoding="utf-8")
        inside.furnish(objects)
        return inside

    def furnish(self, objects: list[Object]) -> None:
        """Put what the Secrets hold where it is mounted."""
        held = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "Secret"}
        volumes = {each["name"]: each for each in pod_spec(objects)["volumes"]}
        for mount in container(objects)["volumeMounts"]:
            secret = volumes.get(mount["name"], {}).get("secret", {"items": []})
            for item in secret["items"]:
                file = Path(self.folders[mount["mountPath"]]) / item["path"]
                file.write_bytes(b64decode(held[secret["secretName"]][item["key"]]))

    @property
    def _paths(self) -> str:
        """What finds a path of the container, longest first."""
        paths = sorted(self.folders, key=len, reverse=True)
        return rf'({"|".join(map(re.escape, paths))})(?=[/"]|$)'

    def here(self, text: str) -> str:
        """Return a text of the container as it reads on this machine."""
        return re.sub(self._paths, lambda found: self.folders[found[1]], text)

    def start(self, log: Path) -> "subprocess.Popen[bytes]":
        """Start the command of the container."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [self.program, *map(self.here, self.command)],
                env=dict(self.variables),
                cwd=self.folders["/var/lib/ringfence"],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def open_to(self, folder: Path) -> None:
        """Put its program where `kubectl exec` looks for it."""
        script = folder / Path(self.program).name
        script.write_text(
            _SCRIPT.format(
                python=sys.executable,
                folders=dict(self.folders),
                paths=self._paths,
                program=self.program,
                variables=dict(self.variables),
            )
        )
        script.chmod(0o755)
