"""Names in templates: whatever is accepted reads what its author wrote."""

import re
from collections.abc import Iterator
from random import Random

import pytest

from ringfence_service.config.model import RouteSettings
from ringfence_service.config.templates import PRESETS, expanded
from ringfence_service.config.validation import NamedRoute, route_problems
from ringfence_service.dedup.field import ContentField, Field, HeaderField, MemberField, pieces_of
from tests.support.helpers import rows

PARTS = (
    *("key", "header:a", "json:/a", "sha256-json:/a", "sha256-json:", "sha256:value", "topic"),
    *("address", "plain", "escaped", "lower:", "trim:", "upper:", " or ", " OR ", "or", " "),
    *(" without /b", " without /b /c", " without /b, /c", " Without /b", ", /b", "/b", ""),
    *(name.strip("{}") for name in PRESETS),
)


def problems_of(key: str, template: str) -> list[str]:
    settings = {"id": "{key}", key: template, "allowed_outputs": ("a",)}
    route = RouteSettings(name="orders", inputs=("orders",), **settings)  # type: ignore[arg-type]
    found = route_problems([NamedRoute("route", route)], "g", has_registry=True)
    return [f"{each.what}; {each.fix}" for each in found]


def fields_of(template: str) -> list[Field]:
    pieces = pieces_of(expanded(template))
    literals = "".join(each for each in pieces if isinstance(each, str)).replace("{topic}", "")
    assert not {"{", "}"} & set(literals.replace("{address}", ""))
    return [part for each in pieces if isinstance(each, Field) for part in each.parts]


def arguments_of(fields: list[Field]) -> Iterator[str]:
    for each in fields:
        if isinstance(each, HeaderField):
            yield each.header
        elif isinstance(each, MemberField):
            yield each.pointer
        elif isinstance(each, ContentField):
            yield each.pointer
            yield " ".join(each.without)


@pytest.mark.parametrize("key", ["id", "address", "output", "dead_letter"])
def test_no_accepted_template_takes_a_name_for_text_or_for_a_part_of_another(key: str) -> None:
    random, accepted = Random(key), 0
    for _ in range(20_000):
        inner = "".join(random.choice(PARTS) for _ in range(random.choice((1, 1, 2, 3, 4, 5))))
        template = f"{random.choice(('', '', '{plain}', 'a.'))}{{{inner}}}"
        if problems_of(key, template):
            continue
        accepted += 1
        fields = fields_of(template)
        if key == "id":
            assert fields, template
        for text in arguments_of(fields):
            assert not re.search(r" (or [/\w-]+:|or /|without )|, */", text.lower()), template
    assert accepted > 100


@rows(
    ("key", "template", "problem"),
    {
        "a preset as an alternative": ("id", "{debezium or json:/id}", "{debezium} can have no"),
        "a filtered preset": ("id", "{lower:cloudevents}", "{cloudevents} can have no filter"),
        "a filtered topic": ("address", "{lower:topic}", "{topic} can have no filter"),
        "a topic as an alternative": ("address", "{key or topic}", "{topic} can have no"),
        "a pointer as an alternative": ("id", "{json:/a or /b}", "as in {json:/a or json:/b}"),
        "a bar": ("id", "{json:/a|json:/b}", "as in {json:/a or json:/b}"),
        "a space before a name": ("id", "{header: x}", "as one field with a long name"),
        "capitals": ("id", "{json:/a OR json:/b}", "as in {json:/a or json:/b}"),
        "pointers with a comma": ("id", "{sha256-json: without /a, /b}", "without /b /c"),
        "members left out of a text": ("id", "{json:/a without /b}", "without /b /c"),
        "a marker and no field": ("id", "{plain}order", "all records would have the same id"),
        "a marker within": ("id", "{key}{escaped}", "at the beginning of an id or an address"),
    },
)
def test_what_would_be_read_as_text_is_named_with_its_remedy(
    key: str, template: str, problem: str
) -> None:
    assert any(problem in each for each in problems_of(key, template))
