"""Release builder: `python -m tools.release 1.2.3` builds every file of a release into dist/.

It refuses, with exit status 2, a checkout with uncommitted changes, a version without a section in
CHANGELOG.md, and a version that differs from the one in a file that states it. It signs and
publishes nothing: CONTRIBUTING.md has the commands for that.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.release import artifacts, image
from tools.release.errors import RefusedError
from tools.release.source import source

CHECKOUT: Final = Path(__file__).parents[2]


def main(words: Sequence[str], root: Path = CHECKOUT) -> int:
    """Build the release; return 2 if it is refused, 1 if a build fails, and print the reason."""
    parser = argparse.ArgumentParser(prog="python -m tools.release")
    parser.add_argument("version", help="the version, as CHANGELOG.md and the packages state it")
    parser.add_argument("--without-image", action="store_true", help="needs no root, no buildah")
    given = parser.parse_args(words)
    try:
        release(root, given.version, with_image=not given.without_image)
    except RefusedError as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except ToolError as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


def release(root: Path, version: str, *, with_image: bool) -> None:
    """Build the files of a version into dist/, and replace its content only if all succeed."""
    found = source(root, version)
    dist, scratch = root / "dist", root / ".run"
    scratch.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="release-") as temporary:
        made = Path(temporary) / "dist"
        made.mkdir()
        artifacts.build(found, made)
        if with_image:
            image.write(found, made)
        artifacts.write_checksums(made)
        shutil.rmtree(dist, ignore_errors=True)
        shutil.move(made, dist)
    print((dist / artifacts.CHECKSUMS).read_text("ascii"), end="")
    print(f"\ndist/ has Ringfence {version} of commit {found.commit}.")
    if not found.section.is_dated:
        print(f"CHANGELOG.md has no date for {version} yet: write it before you tag.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
