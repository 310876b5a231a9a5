"""The one error of this package: a sentence that says what, where, and what to do next."""


class BrokerError(Exception):
    """The broker cannot be had, cannot do what was asked, or does not run."""
