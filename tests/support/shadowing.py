"""Folders of a user that have the names of Ringfence's own, and are imported first."""

from collections.abc import Iterable
from pathlib import Path


def shadowing(folder: Path, names: Iterable[str]) -> Path:
    """Make a package of each name in a folder; each fails when it is imported."""
    for name in names:
        package = folder / name / "__init__.py"
        package.parent.mkdir(parents=True)
        package.write_text("raise RuntimeError(f'{__name__} of the user was imported')\n")
    return folder
