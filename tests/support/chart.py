"""What the chart promises an instance, for tests that hold the service to it."""

import re
from typing import Final

import yaml

from tests.support.repository import CHECKOUT

_VALUES: Final = CHECKOUT / "deploy" / "helm" / "ringfence" / "values.yaml"


def memory_limit() -> int:
    """The bytes that supervisor and workers may take together: the pod's limit."""
    stated = yaml.safe_load(_VALUES.read_text("utf-8"))["resources"]["limits"]["memory"]
    found = re.fullmatch(r"(\d+)Gi", stated)
    assert found is not None, stated
    return int(found[1]) * 1024**3
