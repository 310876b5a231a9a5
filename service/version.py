"""The version of the product: of the installed package, or of the checkout that runs."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PROJECT: Final = "ringfence"


def product_version() -> str:
    """Return it as the package has it."""
    try:
        return version(PROJECT)
    except PackageNotFoundError:
        project_file = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project_file.read_text(encoding="utf-8"))["project"]["version"])
