"""Errors of payloads and of the registry.

A record whose payload cannot be decoded lacks the field. As long as the registry may still have the
schema, no record is at fault: its partition waits.
"""

from collections.abc import Callable

from ringfence_service.errors import AwaitedError


class UndecodableError(ValueError):
    """The payload cannot be read by its schema; the message continues "the value ..."."""


class SchemaUnusableError(ValueError):
    """The text of a schema cannot be used; the message says why."""


class RegistryUnavailableError(AwaitedError):
    """The registry gave no answer about a schema; no record is at fault."""

    def __init__(
        self, url: str, cause: str, awaits: Callable[[], str | None] = lambda: None
    ) -> None:
        super().__init__(f"the schema registry at {url}, which {cause}", awaits)
        self.url, self.cause = url, cause
