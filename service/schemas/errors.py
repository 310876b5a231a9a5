"""Errors of payloads and of the registry.

A record whose payload cannot be decoded lacks the field. If the registry does not answer, no record
is at fault, and the loop waits.
"""


class UndecodableError(ValueError):
    """The payload cannot be read by its schema; the message continues "the value ..."."""


class SchemaUnusableError(ValueError):
    """The text of a schema cannot be used; the message says why."""


class RegistryUnavailableError(Exception):
    """The registry gave no answer about a schema; no record is at fault."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"the schema registry at {url}, which {cause}")
        self.url = url


class SlowRegistryError(RegistryUnavailableError):
    """The look-ups of one transaction took too long. Schemas that were read are kept."""
