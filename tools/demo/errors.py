"""The one error of the demo: a sentence that says what failed, where, and what to do next."""


class DemoError(Exception):
    """The demo cannot go on; its text is the whole message for the user."""
