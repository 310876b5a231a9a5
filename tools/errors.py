"""Base error of the tools, for foreseeable failures."""


class ToolError(Exception):
    """A foreseeable failure; its text is the whole message: what, where, and what to do next."""
