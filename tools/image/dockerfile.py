"""Dockerfile reader: its instructions, its stages, and the files of the checkout that it copies."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path


def instructions(file: Path) -> list[str]:
    """Return the instructions, one line each."""
    return file.read_text("utf-8").replace("\\\n", " ").splitlines()


def without_stages(text: str, images: Mapping[str, str]) -> str:
    """Return the text of a Dockerfile without the stages that were already built.

    Args:
        text: of the whole Dockerfile
        images: the image that was built from each stage, by the name of the stage

    """
    head, *stages = re.split(r"^(?=FROM )", text, flags=re.MULTILINE)
    left = [each for each in stages if _name(each) not in images]
    found = "".join([head, *left])
    for stage, image in images.items():
        found = re.sub(
            rf"^(FROM |COPY --from=){stage}(?=\s)", rf"\g<1>{image}", found, flags=re.MULTILINE
        )
    return found


def _name(stage: str) -> str:
    """Return the name of a stage, or nothing if it has none."""
    _, _, name = stage.partition("\n")[0].partition(" AS ")
    return name


def sources(file: Path) -> list[str]:
    """Return the files and folders that are copied from the build context into an image."""
    copies = [line.split()[1:] for line in instructions(file) if line.startswith("COPY ")]
    ours = [words for words in copies if not words[0].startswith("--from=")]
    return [source for *sources, _target in ours for source in sources]


def digest(file: Path, *more: Path) -> str:
    """Return a SHA-256 over the Dockerfile, the files that it copies, and `more` files."""
    found = hashlib.sha256(b"".join(each.read_bytes() for each in (file, *more)))
    for path in sorted({path for source in sources(file) for path in _files(file.parent / source)}):
        found.update(str(path.relative_to(file.parent)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for inner in path.rglob("*"):
        if inner.is_file() and "__pycache__" not in inner.parts:
            yield inner
