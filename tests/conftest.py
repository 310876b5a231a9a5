"""What holds for all tests."""

import gc
from collections.abc import Generator

import pytest
from hypothesis import settings

from tests.support.leaks import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]  # a hook

# A busy machine is no failure.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the modules and tests, half a million objects, out of every garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
