"""Tracing checks: whether what a tracer needs is installed; nothing of it is imported."""

from importlib.util import find_spec
from typing import Final

from service.errors import Problem
from service.sections import TracingSettings

_LIBRARIES: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def tracing_problems(settings: TracingSettings) -> list[Problem]:
    """What keeps spans from being made."""
    if not settings.endpoint or all(map(_is_there, _LIBRARIES)):
        return []
    what = "tracing.endpoint is set, and the libraries for it are not installed"
    how = "in a checkout, pip install --require-hashes -r requirements/tracing.txt"
    return [Problem(what, f"install them: {how}; or remove it")]


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
