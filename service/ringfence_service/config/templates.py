"""Template syntax: text with placeholders in braces, for the ids, addresses and topics of routes.

A placeholder is a name, such as {topic}, or a field of the record: filters, a kind, an argument.
`{lower:json:/a or header:b}` names two fields, and stands for the first that the record has.
`{sha256-json:/a without /b}` leaves a member out. Nothing here reads a record.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")

PLAIN: Final = "{plain}"
"""Begins a template that puts several fields together as they are, so two records may collide."""
ESCAPED: Final = "{escaped}"
"""Begins a template in which each field has a recognisable end. That is the default."""

FILTERS: Final = ("lower", "trim")
DIGEST: Final = "sha256-json"
SCHEMA_KINDS: Final = frozenset({"schema", "key-schema"})
POINTER_KINDS: Final = frozenset({"json", "key-json", DIGEST}) | SCHEMA_KINDS

_FILTERS: Final = rf"(?:(?:{'|'.join(FILTERS)}):)*"
_KINDS: Final = "|".join(sorted({"header", *POINTER_KINDS}))
_BEGIN: Final = rf"{_FILTERS}(?:(?:key|sha256:value)(?=\}}| or |\Z)|(?:{_KINDS}):)"

FIELD: Final = re.compile(rf"\{{({_BEGIN}[^{{}}]*)\}}")
"""Matches a field of the record; group 1 is the text between the braces."""

_OR: Final = re.compile(rf" or (?={_BEGIN})")
_WITHOUT: Final = " without "


class FieldName(NamedTuple):
    """A field as a template names it."""

    text: str
    """The whole name, as written."""
    filters: tuple[str, ...]
    """The last one is applied first, as the name is written."""
    kind: str
    argument: str
    """The name of a header or a JSON pointer; empty for a kind without an argument."""
    without: tuple[str, ...]
    """JSON pointers of the members that a digest leaves out; they begin at the digested member."""


def choices_of(placeholder: str) -> list[FieldName]:
    """Return the fields that a placeholder names, in the order in which they are looked for."""
    return [_name(text) for text in _OR.split(placeholder)]


def _name(text: str) -> FieldName:
    found, rest = list[str](), text
    while rest.partition(":")[0] in FILTERS and ":" in rest:
        name, _, rest = rest.partition(":")
        found.append(name)
    if rest == "sha256:value":
        return FieldName(text, tuple(found), rest, "", ())
    kind, _, argument = rest.partition(":")
    if kind != DIGEST:
        return FieldName(text, tuple(found), kind, argument, ())
    pointer, has_more, more = argument.partition(_WITHOUT)
    return FieldName(text, tuple(found), kind, pointer, tuple(more.split(" ")) if has_more else ())


def unmarked(template: str) -> str:
    """Return a template without {plain} or {escaped} at its beginning."""
    return template.removeprefix(PLAIN).removeprefix(ESCAPED)


def is_escaped(template: str) -> bool:
    """Return whether a template has several fields, each with a recognisable end."""
    return len(set(FIELD.findall(template))) > 1 and not template.startswith(PLAIN)


_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
_CHANGE: Final = " ".join(
    f"/{name}"
    for name in (
        *_TIMES,
        *("source/version", "source/sequence", "source/xmin", "source/ts_us", "source/ts_ns"),
        # After a crash within a transaction the connector counts its events from 1 again.
        *("transaction/total_order", "transaction/data_collection_order"),
    )
)
"""What differs in a change event of Debezium that is sent again, or by another version."""

_DEBEZIUM: Final = (
    # Only an event of Debezium has it: other documents have no id, and are not taken for copies.
    "{json:/payload/source/connector or json:/source/connector}"
    f" {{sha256-json:/payload without {_CHANGE} or sha256-json: without {_CHANGE}}}"
)

_POSITION: Final = " or ".join(
    f"json:{at}/{prefix}{name}"
    for at in ("", "/payload")
    for name in ("lsn", "pos", "scn", "change_lsn", "commit_lsn")
    for prefix in ("__source_", "__")
)
_FLAT_CHANGE: Final = " ".join(
    # A row may have any columns, so nothing of it is left out but what Debezium adds, and of a
    # schema beside it nothing but its list of fields, which another version may extend.
    (
        "/schema/fields",
        *(
            f"{at}/__{name}"
            for at in ("", "/payload")
            for name in (*_TIMES, "source_version", "version", "source_xmin", "xmin")
        ),
    )
)

_CLOUD_CHANGE: Final = " ".join(
    # Its id is the position, which several rows may have, with what differs when it is sent again.
    (
        *("/id", "/data/schema/fields", "/iodebeziumversion", "/iodebeziumsequence"),
        *("/iodebeziumtsus", "/iodebeziumtsns", "/iodebeziumxmin"),
        *("/iodebeziumtxtotalorder", "/iodebeziumtxdatacollectionorder"),
    )
)

PRESETS: Final = {
    "{cloudevents}": "{header:ce_source} {header:ce_id}",
    "{cloudevents-json}": "{json:/source} {json:/id}",
    "{debezium}": _DEBEZIUM,
    "{debezium-mysql}": _DEBEZIUM,
    "{debezium-postgresql}": _DEBEZIUM,
    "{debezium-cloudevents}": (
        f"{{json:/iodebeziumconnector}} {{sha256-json: without {_CLOUD_CHANGE}}}"
    ),
    "{debezium-flat}": f"{{{_POSITION}}} {{sha256-json: without {_FLAT_CHANGE}}}",
    "{ticdc-canal-json}": "{json:/_tidb/commitTs} {sha256-json: without /id /ts}",
}
"""What an id template may contain as a name: the id that an event format defines."""

EARLIER: Final = {
    "{debezium-mysql}": "{key} {json:/source/file}:{json:/source/pos}:{json:/source/row}",
    "{debezium-postgresql}": "{key} {json:/source/lsn}",
}
"""What two of them have meant before: routes that were started with that keep it."""


def expanded(template: str) -> str:
    """Return a template with the meaning of each preset in it."""
    for name, meaning in PRESETS.items():
        template = template.replace(name, meaning)
    return template


def named(template: str) -> str:
    """Return an expanded template with the name of each preset again, for people."""
    for name, meaning in PRESETS.items():
        template = template.replace(meaning, name)
    return template


def earlier(template: str) -> Iterator[str]:
    """Yield what the text of an expanded template without a marker has meant before."""
    yield PLAIN + template
    for name, meaning in EARLIER.items():
        yield PLAIN + template.replace(PRESETS[name], meaning)
