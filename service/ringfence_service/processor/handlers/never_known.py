"""Ids that can never be known: says why no record of an address can have an id.

It says so only where that is certain: an id may also have been imported, or be a bridge's stamp.
"""

import re
from collections.abc import Iterator

from ringfence_service.config.addresses import settings_of
from ringfence_service.config.expressions import EXPRESSION_MARKER
from ringfence_service.config.model import Config, RouteSettings
from ringfence_service.config.templates import FIELD, unmarked
from ringfence_service.dedup.claim import is_stamp

_SHAPES = {"sha256:value": b"[0-9a-f]{64}"}
"""What the fields of a template give, where that has a shape."""


def why_never_known(address: str, identifier: bytes, config: Config) -> str | None:
    """Return why no record of an address can have this id, as a sentence; None if one may."""
    if is_stamp(identifier):
        return None
    settings = settings_of(config.addresses, address)
    if not settings.remembered_by.holds_ids:
        return (
            f"{address} has the strategy {settings.strategy}, which remembers numbers of "
            "publishers and no ids: look up the publisher."
        )
    if not settings.remembers:
        return f"{address} remembers no ids: its strategy is off, or its size is 0."
    makers = [route for route in config.routes if _may_yield(route, address)]
    if not makers or any(_may_make(route, identifier) for route in makers):
        return None
    templates = ", ".join(f'"{route.id}" ({route.name})' for route in makers)
    return f"No record of {address} can have this id: ids are made by {templates}."


def _may_yield(route: RouteSettings, address: str) -> bool:
    """Whether the address template of a route may give an address."""
    if FIELD.search(route.address):
        return True
    return any(
        name.startswith(EXPRESSION_MARKER)
        or unmarked(route.address).replace("{topic}", name) == address
        for name in route.inputs
    )


def _may_make(route: RouteSettings, identifier: bytes) -> bool:
    """Whether the id template of a route may give an id."""
    fields = FIELD.findall(route.id)
    if len(fields) != 1:
        return True  # it reads the headers, or how several fields are put together decides
    return re.fullmatch(b"".join(_pattern(route.id)), identifier, re.DOTALL) is not None


def _pattern(template: str) -> Iterator[bytes]:
    """Yield the parts of an expression for what a template with one field gives."""
    before, field, after = FIELD.split(unmarked(template))
    yield re.escape(before.encode())
    yield _SHAPES.get(field, b".*")
    yield re.escape(after.encode())
