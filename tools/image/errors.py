"""What keeps the image from being built; messages are whole sentences for the user."""

from tools.errors import ToolError


class ImageError(ToolError):
    """A program that builds is missing, or failed."""
