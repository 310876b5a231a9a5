"""Image build of this checkout, on a base image made from Debian packages; the result is cached.

Each stage that more than one target needs is an image too, and built once for all of them.

The settings of pip and Maven on this machine (an index, a mirror, certificates) are passed to the
build as secrets and mounts, so that no layer contains them.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from ringfence_service.clock import product_version
from tools.image import base
from tools.image.buildah import Buildah
from tools.image.dockerfile import digest, without_stages
from tools.jars import RUN_FOLDER, exclusive

CHECKOUT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = CHECKOUT / "Dockerfile"
FOLDER: Final = RUN_FOLDER / "image"
TARGETS: Final = ("service", "spark")
_SHARED: Final[Mapping[str, Sequence[str]]] = {
    "build": (),
    "service": ("build",),
    "spark": ("build", "service"),
}
"""The stages that each is made of and that are images of their own."""
CERTIFICATES: Final = Path("/etc/ssl/certs")
"""Certificates that this machine, and therefore the build, trusts."""
MAVEN_SETTINGS: Final = Path.home() / ".m2" / "settings.xml"
_WAIT_S: Final = 1800.0


class Image(NamedTuple):
    """A built image."""

    buildah: Buildah
    name: str
    version: str


def built(target: str = "service") -> Image:
    """Return the image of a Dockerfile target, building it if the checkout has changed.

    Raises ImageError if the build fails.
    """
    buildah, version = Buildah(FOLDER), product_version()
    FOLDER.mkdir(parents=True, exist_ok=True)
    tag = digest(DOCKERFILE, Path(base.__file__))[:12]
    with exclusive(FOLDER / "lock", _WAIT_S):
        return Image(buildah, _named(buildah, target, tag, version), version)


def _named(buildah: Buildah, target: str, tag: str, version: str) -> str:
    """Return the name of the image of a stage, building it if it is missing."""
    repository = f"localhost/ringfence-{target}"
    name = f"{repository}:{tag}"
    before = [one for one in buildah.images() if one.startswith(f"{repository}:")]
    if name not in before:
        shared = {each: _named(buildah, each, tag, version) for each in _SHARED[target]}
        _build(buildah, target, name, version, shared)
        for outdated in before:
            buildah.run("rmi", outdated)
    return name


def _build(
    buildah: Buildah, target: str, name: str, version: str, shared: Mapping[str, str]
) -> None:
    arguments = {"PYTHON": base.made(buildah, base.PYTHON), "VERSION": version}
    if target != "build":
        arguments["COMPILER"] = arguments["JAVA"] = base.made(buildah, base.BUILDER)
    mounted = sorted({str(CERTIFICATES), *_pip_files()})
    with (
        tempfile.NamedTemporaryFile("w") as pip_config,
        tempfile.NamedTemporaryFile("w", suffix=".Dockerfile") as dockerfile,
    ):
        pip_config.write("\n".join(["[global]", *map(" = ".join, _pip_settings().items())]))
        pip_config.flush()
        dockerfile.write(without_stages(DOCKERFILE.read_text("utf-8"), shared))
        dockerfile.flush()
        secrets = {"pip.conf": Path(pip_config.name), "settings.xml": MAVEN_SETTINGS}
        buildah.build(
            Path(dockerfile.name),
            CHECKOUT,
            *("--target", target, "--tag", name),
            *each("--build-arg", [f"{key}={value}" for key, value in arguments.items()]),
            *each("--secret", [f"id={key},src={at}" for key, at in secrets.items() if at.exists()]),
            *each("--volume", [f"{path}:{path}:ro" for path in mounted if Path(path).exists()]),
        )


def each(option: str, values: Sequence[str]) -> Iterator[str]:
    """Yield an option with each of its values."""
    for value in values:
        yield from (option, value)


@cache
def _pip_settings() -> dict[str, str]:
    """Return pip's settings on this machine, from all its files and the environment."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    settings = (line.partition("=") for line in done.stdout.splitlines())
    return {name.rpartition(".")[2]: value.strip("'") for name, _, value in settings}


def _pip_files() -> list[str]:
    """Return the files and folders that these settings name, other than the certificates."""
    paths = [Path(value) for value in _pip_settings().values() if value.startswith("/")]
    return [str(path) for path in paths if CERTIFICATES not in path.parents]
