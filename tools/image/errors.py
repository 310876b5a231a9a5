"""Error of the image build."""

from tools.errors import ToolError


class ImageError(ToolError):
    """A build program is missing or failed."""
