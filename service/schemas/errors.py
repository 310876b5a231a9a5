"""Errors of payloads and of the registry.

The first is of a record, which lacks the field then. The second is of no record: it is waited out.
"""


class UndecodableError(ValueError):
    """The payload cannot be read by its schema; the message continues "the value ..."."""


class SchemaUnusableError(ValueError):
    """The text of a schema cannot be used; the message says why."""


class RegistryUnavailableError(Exception):
    """The registry gave no answer about a schema; no record is to blame."""

    def __init__(self, url: str, cause: str) -> None:
        super().__init__(f"the schema registry at {url}, which {cause}")
        self.url = url


class SlowRegistryError(RegistryUnavailableError):
    """The schemas of one transaction take too long; those that were read are kept."""
