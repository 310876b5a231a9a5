"""Error of the demo."""

from tools.errors import ToolError


class DemoError(ToolError):
    """The demo cannot continue."""
