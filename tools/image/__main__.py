"""Image builder: `python -m tools.image [spark]` builds an image, prints its size and packages.

Needs Debian, root, buildah and mmdebstrap; no engine and no registry. The bill of materials is
written beside the images, as .run/image/ringfence-service.cdx.json.
"""

import sys
from collections.abc import Sequence

from tools.image.build import FOLDER, TARGETS, built
from tools.image.contents import as_cyclonedx, packages_in, size_in_mib
from tools.image.errors import ImageError


def main(targets: Sequence[str]) -> int:
    """Build and describe each image; return 1, and print the reason, if a build fails."""
    for target in targets or TARGETS[:1]:
        if target not in TARGETS:
            print(f"There is no image {target!r}: choose of {', '.join(TARGETS)}", file=sys.stderr)
            return 2
        try:
            describe(target)
        except ImageError as unavailable:
            print(unavailable, file=sys.stderr)
            return 1
    return 0


def describe(target: str) -> None:
    """Build an image, write its bill of materials, and print its packages and size."""
    image = built(target)
    container = image.buildah.container(image.name)
    try:
        packages = packages_in(container.files())
        size_mib = size_in_mib(container.files())
    finally:
        container.remove()
    bill = FOLDER / f"ringfence-{target}.cdx.json"
    bill.write_text(as_cyclonedx(f"ringfence-{target}", image.version, packages), encoding="utf-8")
    for package in packages:
        print(f"{package.kind:<5} {package.name:<40} {package.version}")
    print(f"\n{image.name}: {size_mib:.0f} MiB, {len(packages)} packages; {bill}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
