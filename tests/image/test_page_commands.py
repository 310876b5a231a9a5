"""The commands that build and push an image, typed as the pages have them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.conftest import built_or_skipped
from tests.support.pages import block
from tools.image.build import CHECKOUT, Image
from tools.image.buildah import Buildah

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

REGISTRY = "registry.example.com"
TAGGED = {f"{REGISTRY}/ringfence:0.1.0": "service", f"{REGISTRY}/ringfence-spark:0.1.0": "spark"}


def typed(buildah: Buildah) -> dict[str, str]:
    """Return the names that the commands gave, and the images that they name."""
    found = buildah.run("images", "--format", "{{.Name}}:{{.Tag}} {{.ID}}").splitlines()
    return {name: number for name, number in map(str.split, found) if name.startswith(REGISTRY)}


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Image]]:
    found = {target: built_or_skipped(target) for target in TAGGED.values()}
    yield found
    buildah = found["service"].buildah
    for name in typed(buildah):
        buildah.run("rmi", name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "tags"), [("docs/image.md", 2), ("deploy/helm/ringfence/README.md", 1)]
)
def test_the_commands_of_a_page_build_the_image_that_they_push(
    page: str, tags: int, images: dict[str, Image], tmp_path: Path
) -> None:
    commands = block((CHECKOUT / page).read_text("utf-8"), "sh", "docker build")
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.image.docker "$@"\n')
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-ec", commands], cwd=CHECKOUT, env={**os.environ, "PATH": path}, check=True
    )
    found = typed(images["service"].buildah)
    assert len(found) >= tags
    for name, number in found.items():
        image = images[TAGGED[name]]
        # A line for each of its names.
        assert {*image.buildah.run("images", "--format", "{{.ID}}", image.name).split()} == {number}
