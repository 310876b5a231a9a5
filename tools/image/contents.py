"""Package list of an image, read from its files, and its software bill of materials (CycloneDX).

Debian packages are in dpkg's status file, Python packages beside their modules. Nothing is run in
the image.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

_NAMESPACE: Final = uuid.UUID("6f1d63b4-59a5-4a5e-9d2c-0d5d1f0b6c11")


class Package(NamedTuple):
    """An installed package; `kind` is the type in its package URL: deb or pypi."""

    kind: str
    name: str
    version: str

    @property
    def url(self) -> str:
        """The package URL, which identifies it globally."""
        space = "debian/" if self.kind == "deb" else ""
        return f"pkg:{self.kind}/{space}{quote(self.name)}@{quote(self.version, safe='')}"


def packages_in(root: Path) -> list[Package]:
    """Return all packages below a root, each once, sorted by kind and name."""
    return sorted({*_debian(root), *_python(root)})


def size_in_mib(root: Path) -> float:
    """Return the total size of the files below a root; hard links count once."""
    sizes = {}
    for path in root.rglob("*"):
        if path.is_symlink() or path.is_file():
            status = path.lstat()
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values()) / 2**20


def as_cyclonedx(name: str, version: str, packages: Sequence[Package]) -> str:
    """Return the bill of materials as JSON; the same packages give the same text."""
    components = [
        {
            "type": "library",
            "bom-ref": package.url,
            "name": package.name,
            "version": package.version,
            "purl": package.url,
        }
        for package in packages
    ]
    serial = uuid.uuid5(_NAMESPACE, "\n".join([name, version, *(p.url for p in packages)]))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def _debian(root: Path) -> Iterator[Package]:
    status = root / "var/lib/dpkg/status"
    paragraphs = status.read_text("utf-8").split("\n\n") if status.exists() else []
    for paragraph in paragraphs:
        fields = HeaderParser().parsestr(paragraph.strip())
        if fields["Status"] == "install ok installed":
            yield Package("deb", fields["Package"], fields["Version"])


def _python(root: Path) -> Iterator[Package]:
    for path in root.glob("**/*.dist-info/METADATA"):
        metadata = HeaderParser().parsestr(path.read_text("utf-8", errors="replace"))
        yield Package("pypi", metadata["Name"].lower().replace("_", "-"), metadata["Version"])
