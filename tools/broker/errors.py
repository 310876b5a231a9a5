"""The one error of this package: a sentence that says what, where, and what to do next."""

from tools.errors import ToolError


class BrokerError(ToolError):
    """The broker cannot be had, cannot do what was asked, or does not run."""
