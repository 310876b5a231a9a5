"""Contents: what an image holds, read from its files, and told as CycloneDX, the format of SBOMs.

Debian's packages stand in dpkg's list, Python's beside their modules; nothing is run in the image.
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
    """One package. `kind` is what a package URL calls its ecosystem: deb or pypi."""

    kind: str
    name: str
    version: str

    @property
    def url(self) -> str:
        """The package URL, which names it in all the world."""
        space = "debian/" if self.kind == "deb" else ""
        return f"pkg:{self.kind}/{space}{quote(self.name)}@{quote(self.version, safe='')}"


def packages_in(root: Path) -> list[Package]:
    """All packages below a root, each once, by kind and name."""
    return sorted({*_debian(root), *_python(root)})


def size_in_mib(root: Path) -> float:
    """How much the files below a root take; one that has several names counts once."""
    sizes = {}
    for path in root.rglob("*"):
        if path.is_symlink() or path.is_file():
            about = path.lstat()
            sizes[about.st_dev, about.st_ino] = about.st_size
    return sum(sizes.values()) / 2**20


def as_cyclonedx(name: str, version: str, packages: Sequence[Package]) -> str:
    """The bill of materials as JSON; the same packages give the same text."""
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
    told = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": components,
    }
    return json.dumps(told, indent=1) + "\n"


def _debian(root: Path) -> Iterator[Package]:
    status = root / "var/lib/dpkg/status"
    paragraphs = status.read_text("utf-8").split("\n\n") if status.exists() else []
    for paragraph in paragraphs:
        told = HeaderParser().parsestr(paragraph.strip())
        if told["Status"] == "install ok installed":
            yield Package("deb", told["Package"], told["Version"])


def _python(root: Path) -> Iterator[Package]:
    for about in root.glob("**/*.dist-info/METADATA"):
        told = HeaderParser().parsestr(about.read_text("utf-8", errors="replace"))
        yield Package("pypi", told["Name"].lower().replace("_", "-"), told["Version"])
