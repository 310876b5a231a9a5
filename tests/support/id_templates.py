"""Id templates with the ids that they give: the route and the Java interceptor have to agree."""

from typing import Final, NamedTuple

from ringfence_client.headers import Headers


class Vector(NamedTuple):
    """A template, a message, and the id; None for a message without one."""

    template: str
    expected: bytes | None
    headers: Headers = ()
    value: bytes | None = None
    key: bytes | None = None


_AB: Final = (("A", b"or-der"), ("B", b"7-1"))
_ACCENTS: Final = (("A", "aéb\\".encode()), ("B", "é".encode()))
_ODD: Final = (("A", b"\\\xff-"), ("B", b"x\\"))

VECTORS: Final = (
    Vector("{header:A}-{header:B}", b"or\\-der-7-1", _AB),
    Vector("{escaped}{header:A}-{header:B}", b"or\\-der-7-1", _AB),
    Vector("{plain}{header:A}-{header:B}", b"or-der-7-1", _AB),
    Vector("{header:A}{header:B}", b"or-der|7-1", _AB),
    Vector("{header:A}\\{header:B}", b"or-der|\\7-1", _AB),
    Vector("v{header:A}-{header:A}.", b"vor-der-or-der.", _AB),
    Vector("<{header:A}->{header:B}{header:A}>", b"<or\\-der->7-1|or-der>", _AB),
    Vector("{header:A}é{header:B}", r"a\éb\\éé".encode(), _ACCENTS),
    Vector("{header:A}-{header:B}", b"\\\\\xff\\--x\\", _ODD),
    Vector("{header:A}-{header:C}", None, _AB),
    Vector("{header:A}-{header:B}", b"-", (("A", None), ("A", b""), ("B", b""), ("B", b"second"))),
    Vector("{key}/{json:/order/id}", b"a\\/b/4711", (), b'{"order": {"id": 4711}}', b"a/b"),
    Vector("{key-json:/k} {json:/n}", b"true 1.50", (), b'{"n": 1.50}', b'{"k": true}'),
    Vector("{json:/a b}", b"c", (), b'{"a b": "c"}'),
    Vector("{json:/a or header:B or key}", b"1", _AB, b'{"a": 1}', b"k"),
    Vector("{json:/a or header:B or key}", b"7-1", _AB, b"no JSON", b"k"),
    Vector("{json:/a or header:C or key}", b"k", _AB, b'{"a": null}', b"k"),
    Vector("{json:/a or header:C or key}", None, _AB),
    Vector("{json:/a or header:B or key}", b"7-1", _AB, b'{"a": ""}', b"k"),
    Vector("{header:C or key}", b"k", (("C", b""),), None, b"k"),
    Vector("{json:/a or key}", None, (), b'{"a": ""}', b""),
    Vector("{trim:json:/a or key}", b"k", (), b'{"a": " "}', b"k"),
    Vector("{json:/yes or no}", b"1", (), b'{"yes or no": 1}'),
    Vector("{header:C or json:/a}-{key or header:A}", b"1\\-2-or-der", _AB, b'{"a": "1-2"}'),
    Vector("{lower:header:A}", b"abc", (("A", b"AbC"),)),
    Vector("{lower:header:A}", b"A\xff", (("A", b"A\xff"),)),
    Vector("{trim:header:A}", b"a b", (("A", b" a b\t\n\x1f"),)),
    Vector("{trim:header:A}", b"", (("A", b"  "),)),
    Vector("{trim:header:A}", "\u200b".encode(), (("A", "\u3000\u200b\xa0\x85\u2028".encode()),)),
    Vector("{lower:trim:json:/id or key}", "äb".encode(), (), '{"id": " ÄB "}'.encode()),
    Vector("{lower:trim:json:/id or key}", b" K", (), b"{}", b" K"),
    Vector(
        "{trim:lower:key}.{lower:key}",
        "straße|.".encode()[:-2] + b".stra\xc3\x9fe ",
        (),
        None,
        "STRAßE ".encode(),
    ),
)

REFUSED: Final = (
    *("{sha256:value}", "{schema:/a}", "{key-schema:/a}", "{sha256-json:/a without /b}"),
    *("{json:/a or sha256-json:/b}", "{json:/a} {lower:sha256:value}", "{key or schema:/b}"),
    *("{topic}.{key}", "{debezium}", "{cloudevents}", "{header:}", "{lower:}", "{}"),
)
"""Fields that no producer can read, and names that are none."""
