"""Kubernetes at its pinned version: etcd, API server, controllers, scheduler, kubectl and kwok.

The first build takes about ten minutes on two cores; the first test that needs it runs it.
"""

import re
from pathlib import Path
from typing import Final

from tools.go import GoProgram

FOLDER: Final = Path(__file__).parent


def _pinned(module: str) -> str:
    line = rf"^\t{re.escape(module)} (v[0-9.]+)$"
    found = re.search(line, (FOLDER / "go.mod").read_text(), re.MULTILINE)
    assert found, f"go.mod pins no {module}"
    return found[1]


VERSION: Final = _pinned("k8s.io/kubernetes")
"""Linked into the program, since clients that check the version do not work without it."""

KUBERNETES: Final = GoProgram(
    "kubernetes",
    FOLDER,
    ".",
    link=f"-s -w -X k8s.io/component-base/version.gitVersion={VERSION}",
)
