"""How many random examples a test tries; `make test-long` tries more of them."""

import os
from typing import Any, Final

from hypothesis import settings

_FACTOR: Final = int(os.environ.get("RINGFENCE_EXAMPLES_FACTOR") or 1)


def examples(count: int, **options: Any) -> settings:
    """Settings of a test that tries so many examples, or that many times the factor."""
    return settings(max_examples=count * _FACTOR, **options)
