"""Gives the tests the image of this checkout, or says why there is none."""

import os
import shutil
from collections.abc import Iterator

import pytest

from tools.broker.cluster import Broker, open_broker
from tools.image.build import Image, built
from tools.image.buildah import Container


@pytest.fixture(scope="session")
def image() -> Image:
    return built_or_skipped("service")


def built_or_skipped(target: str) -> Image:
    absent = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    if absent or os.geteuid():
        pytest.skip(f"an image is built by root with {', '.join(absent) or 'what is here'}")
    return built(target)


@pytest.fixture(scope="session")
def container(image: Image) -> Iterator[Container]:
    """One for all tests: each is a copy of all files."""
    made = image.buildah.container(image.name)
    yield made
    made.remove()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with open_broker(tmp_path_factory.mktemp("broker"), heap_mb=512, short_lived=True) as broker:
        yield broker
