"""What every tool raises for a foreseeable failure: what failed, where, and what to do next."""


class ToolError(Exception):
    """Its text is the whole message for the user."""
