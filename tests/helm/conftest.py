"""Gives the chart's tests a real Helm, or says why there is none."""

from pathlib import Path

import pytest

from tests.helm.chart import Helm
from tools.helm.build import GoMissingError, helm_binary


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    try:
        binary: Path = helm_binary()
    except GoMissingError as missing:
        pytest.skip(str(missing))
    return Helm(binary, tmp_path_factory.mktemp("helm"))
