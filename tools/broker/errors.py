"""Error of the broker tools."""

from tools.errors import ToolError


class BrokerError(ToolError):
    """The broker is unavailable, does not run, or does not support the operation."""
