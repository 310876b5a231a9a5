"""Stand-in for `docker`: builds an image with buildah on the bases that this machine can make.

`build` takes the target, the tag and the context as Docker does, and reuses an image that was built
from the same files. There is no registry, so `push` only finds the image that it would send.
"""

import argparse
import sys
from pathlib import Path

from tools.image.build import CHECKOUT, DOCKERFILE, FOLDER, TARGETS, built
from tools.image.buildah import Buildah
from tools.image.dockerfile import instructions


def main() -> int:
    """Run a command; return 1 if there is no such image or folder."""
    parser = argparse.ArgumentParser(prog="docker")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build")
    build.add_argument("--tag", required=True)
    build.add_argument("--target", choices=TARGETS, default=default_target())
    build.add_argument("context", type=Path)
    push = commands.add_parser("push")
    push.add_argument("image")
    given = parser.parse_args()
    if given.command == "push":
        return 0 if given.image in Buildah(FOLDER).images() else 1
    if given.context.resolve() != CHECKOUT:
        return 1
    image = built(given.target)
    image.buildah.run("tag", image.name, given.tag)
    return 0


def default_target() -> str:
    """Return the stage that the last one of the Dockerfile is."""
    stages = [line.split()[1] for line in instructions(DOCKERFILE) if line.startswith("FROM ")]
    return stages[-1]


if __name__ == "__main__":
    sys.exit(main())
