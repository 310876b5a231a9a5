"""The one error of the demo: a sentence that says what failed, where, and what to do next."""

from tools.errors import ToolError


class DemoError(ToolError):
    """The demo cannot go on; its text is the whole message for the user."""
