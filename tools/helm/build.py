"""Helm at its pinned version; the first build takes about two minutes."""

from pathlib import Path
from typing import Final

from tools.go import GoProgram

HELM: Final = GoProgram("helm", Path(__file__).parent, "helm.sh/helm/v4/cmd/helm", link="-s -w")
