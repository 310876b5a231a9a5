"""What holds for all tests."""

from hypothesis import settings

# A busy machine is no failure.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")
