"""The documentation as a site, built with the tools of `make docs`."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from tools.site.pages import ROOT

CONFIG: Final = ROOT / "tools" / "site" / "mkdocs.yml"
_PYTHON: Final = ROOT / ".venv" / "docs" / "bin" / "python"


def built(folder: Path) -> Path:
    """Build the site into a folder; skip the test where the tools are not installed."""
    if not _PYTHON.exists():
        pytest.skip("the documentation's tools are not installed: make .venv/docs/made")
    options = ["--config-file", str(CONFIG), "--site-dir", str(folder)]
    command = [str(_PYTHON), "-m", "mkdocs", "build", *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return folder
