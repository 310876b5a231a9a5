"""The image: who it runs as, what is in it and what is not, and the service in it at work."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from packaging.markers import Marker

from tests.broker.service import REPOSITORY, Service
from tests.broker.world import World
from tests.soak.footprint import tree
from tools.broker.cluster import Broker
from tools.broker.config import free_port
from tools.image.build import Image
from tools.image.buildah import Container
from tools.image.contents import as_cyclonedx, packages_in

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

USER: Final = 10001
STATE: Final = "/var/lib/ringfence"
GRACE_S: Final = 40.0
"""What the chart gives it to leave."""


def test_it_says_what_it_is_and_runs_as_nobody_special(image: Image, container: Container) -> None:
    config = image.buildah.config(image.name)
    labels = {name.rpartition(".")[2]: told for name, told in config["Labels"].items()}
    assert labels["version"] == image.version
    assert labels.keys() >= {"title", "description", "licenses", "revision", "created"}
    assert config["User"] == f"{USER}:{USER}"
    assert (config["Entrypoint"], config["Cmd"][0]) == (["ringfence"], "serve")
    assert container.run("sh", "-c", "id -u; id -g").split() == [f"{USER}"] * 2


def test_the_same_image_has_every_command(container: Container) -> None:
    told = container.run("ringfence", "--help")
    for command in ("serve", "bridge", "check"):
        assert command in told
        assert "--config" in container.run("ringfence", command, "--help")


def test_the_compiled_fast_path_runs_in_it(container: Container) -> None:
    told = "from ringfence_service.native.path import chosen; print(chosen('native')[:2])"
    assert container.run("python", "-P", "-c", told).strip() == "('native', None)"


def test_nothing_in_it_installs_or_builds(container: Container) -> None:
    programs = "for at in pip pip3 easy_install gcc cc g++ make ld; do command -v $at; done; true"
    assert container.run("sh", "-c", programs) == ""
    modules = "pip ensurepip setuptools"
    for python in ("/opt/ringfence/bin/python", "/usr/local/bin/python"):
        script = f'for at in {modules}; do {python} -c "import $at" 2>/dev/null && echo $at; done'
        assert container.run("sh", "-c", f"{script}; true") == ""


def test_what_is_in_it_is_what_is_locked(container: Container) -> None:
    packages = packages_in(container.files())
    found = {(one.name, one.version) for one in packages if one.kind == "pypi"}
    locked = dict(requirements(REPOSITORY / "requirements" / "schema-registry.txt"))
    assert {name for name, _ in found} == {"ringfence", "ringfence-server", *locked}
    assert {(name, version) for name, version in found if name in locked} == set(locked.items())


def requirements(file: Path) -> list[tuple[str, str]]:
    """Names and versions of a lock file, of those that this system needs."""
    lines = re.findall(r"^([\w.-]+)==(\S+)(?: ; (.*?))? \\$", file.read_text("utf-8"), re.MULTILINE)
    here = {"python_version": "3.11", "python_full_version": "3.11.2"}
    return [
        (name.lower(), version)
        for name, version, marker in lines
        if not marker or Marker(marker).evaluate(here)
    ]


def test_its_bill_of_materials_names_every_package_once(image: Image, container: Container) -> None:
    packages = packages_in(container.files())
    told = json.loads(as_cyclonedx("ringfence", image.version, packages))
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    urls = [component["purl"] for component in told["components"]]
    assert len(urls) == len(set(urls)) == len(packages)
    assert f"pkg:pypi/ringfence@{image.version}" in urls
    assert any(url.startswith("pkg:deb/debian/libc6@") for url in urls)


class Contained(Service):
    """A service in a container of the image, with its configuration and its volume mounted."""

    def __init__(self, container: Container, folder: Path, port: int) -> None:
        super().__init__(folder / "etc" / "ringfence.toml", port, folder / "log")
        self._container = container
        self._folder = folder

    def start(
        self, victim: Mapping[str, str] | None = None, *, through: Sequence[str] = ()
    ) -> None:
        """Start what the image starts."""
        mounts = {f"{self._folder}/etc": "/etc/ringfence:ro", f"{self._folder}/state": STATE}
        options = [word for here, there in mounts.items() for word in ("-v", f"{here}:{there}")]
        words = ("ringfence", "serve", "--config", "/etc/ringfence/ringfence.toml")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*through, *self._container.command(*words, options=options)],
                env={**self._container.buildah.environment(), **(victim or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def inside(self) -> int:
        """The process that was started in the container."""
        for pid in tree(self.process.pid):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"serve" in words and b"buildah" not in words[0]:
                return pid
        raise AssertionError(f"nothing serves in the container\n{self.tail()}")


def test_it_serves_a_real_broker_as_its_user_and_changes_nothing_of_the_image(
    container: Container, kafka: Broker, tmp_path: Path
) -> None:
    group = f"image-{time.time_ns()}"
    with World(kafka.client_properties, tmp_path, group) as world:
        world.create()
        service = world.adopted(Contained(container, tmp_path, free_port(0)))
        config = world.config_text(service.port, "0", "state").replace(f"{tmp_path}/state", STATE)
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "ringfence.toml").write_text(config)
        (tmp_path / "state").mkdir()
        subprocess.run(["chown", f"{USER}:{USER}", tmp_path / "state"], check=True)
        before = files(container.files())
        service.start()
        world.send()
        world.wait_decided()
        service.wait_ready()
        inside = service.inside()
        for pid in tree(inside):
            status = Path(f"/proc/{pid}/status").read_text()
            assert re.search(rf"^Uid:(\s+{USER}){{4}}$", status, re.MULTILINE), status
        subprocess.run(["kill", f"-{signal.SIGTERM:d}", f"{inside}"], check=True)
        assert service.wait(GRACE_S) == 0, service.tail()
        world.verify()
        world.verify_store()
        assert files(container.files()) == before, "it wrote into the image's own files"


def files(root: Path) -> dict[str, int]:
    """Every file, and when it was last written; what is mounted for a run is not among them."""
    mounted = ("etc/hosts", "etc/resolv.conf", "run/.containerenv")
    return {
        f"{path.relative_to(root)}": path.lstat().st_mtime_ns
        for path in root.rglob("*")
        if path.is_file() and not f"{path.relative_to(root)}".startswith(mounted)
    }
