"""Errors of a release."""

from tools.errors import ToolError


class RefusedError(ToolError):
    """The commit cannot become this release; nothing was built."""


class BuildError(ToolError):
    """A file of the release could not be built."""
