"""The image of a release: an archive that names its commit, and runs when it is loaded."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ringfence_service.clock import product_version
from tests.support.repository import copy_of_checkout
from tools.image.build import Image
from tools.image.buildah import Container
from tools.release.image import REPOSITORY, write
from tools.release.source import Source, source

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

VERSION: Final = product_version()


@pytest.fixture(scope="module")
def released(image: Image, tmp_path_factory: pytest.TempPathFactory) -> tuple[Source, Path]:
    """The commit, and the folder with its image."""
    assert image.name
    found = source(copy_of_checkout(tmp_path_factory.mktemp("checkout")), VERSION)
    folder = tmp_path_factory.mktemp("dist")
    write(found, folder)
    return found, folder


@pytest.fixture(scope="module")
def loaded(image: Image, released: tuple[Source, Path]) -> Iterator[Image]:
    """The image as it comes out of the archive."""
    _, folder = released
    image.buildah.run("pull", "--quiet", f"oci-archive:{folder / f'ringfence-{VERSION}.oci.tar'}")
    name = f"{REPOSITORY}:{VERSION}"
    yield image._replace(name=name)
    image.buildah.run("rmi", name)


def test_the_archive_holds_the_image_of_the_commit(
    image: Image, loaded: Image, released: tuple[Source, Path]
) -> None:
    found, _ = released
    was, now = image.buildah.config(image.name), image.buildah.config(loaded.name)
    labels = {name.rpartition(".")[2]: text for name, text in now["Labels"].items()}
    assert (labels["version"], labels["revision"]) == (VERSION, found.commit)
    assert labels["created"] == found.committed
    assert {name for name in was if was[name] != now.get(name)} == {"Labels"}


def test_what_is_loaded_runs(loaded: Image) -> None:
    container: Container = loaded.buildah.container(loaded.name)
    try:
        assert VERSION in container.run("ringfence", "--version")
    finally:
        container.remove()


def test_its_bill_of_materials_is_beside_it(released: tuple[Source, Path]) -> None:
    found, folder = released
    names = {f"ringfence-{VERSION}.oci.tar", f"ringfence-{VERSION}.oci.cdx.json"}
    assert {path.name for path in folder.iterdir()} == names
    bill = json.loads((folder / f"ringfence-{VERSION}.oci.cdx.json").read_text("utf-8"))
    assert bill["metadata"]["component"]["version"] == found.version
    urls = [component["purl"] for component in bill["components"]]
    assert f"pkg:pypi/ringfence-server@{VERSION}" in urls
    assert any(url.startswith("pkg:deb/debian/libc6@") for url in urls)
