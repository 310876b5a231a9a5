"""What holds for all tests."""

from hypothesis import settings

from tests.support.leaks import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]  # a hook

# A busy machine is no failure.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")
