"""Image of a release: an OCI archive of the service's image, and its bill of materials."""

from pathlib import Path

from tools.image.build import built, each
from tools.image.contents import as_cyclonedx, packages_in
from tools.release.source import Source

REPOSITORY = "localhost/ringfence"
"""The name of the image in the archive; it is in no registry."""


def write(source: Source, folder: Path) -> None:
    """Build the image if it is missing, label it, and write both files; raise ImageError."""
    name = f"ringfence-{source.version}.oci"
    labels = {"version": source.version, "revision": source.commit, "created": source.committed}
    image = built("service")
    container = image.buildah.container(image.name)
    try:
        packages = packages_in(container.files())
        prefix = "org.opencontainers.image"
        written = [f"{prefix}.{label}={value}" for label, value in labels.items()]
        image.buildah.run("config", *each("--label", written), container.name)
        archive = f"oci-archive:{folder / f'{name}.tar'}:{REPOSITORY}:{source.version}"
        options = ("--quiet", "--format", "oci", "--disable-compression=false")
        image.buildah.run("commit", *options, container.name, archive)
    finally:
        container.remove()
    bill = as_cyclonedx("ringfence-service", source.version, packages)
    (folder / f"{name}.cdx.json").write_text(bill, "utf-8")
