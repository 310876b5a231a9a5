"""The classes of clients/java without a broker: what is read as an id, and what is refused."""

import itertools
import json
import tomllib
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ringfence_service.dedup.claim import identifier_of
from ringfence_service.dedup.field import JsonField
from ringfence_service.schemas.limits import DEPTH_MAX
from tests.broker.clients import HERE, RINGFENCE
from tests.support.deciding import record
from tests.support.helpers import some
from tests.support.id_templates import REFUSED, VECTORS, Vector

pytestmark = pytest.mark.broker

ROOT: Final = Path(__file__).parents[2]
POINTERS: Final = ("", "/", "/a", "/a/b", "/a/0", "/a/1/c", "/a/00", "/a/-1", "/~1~0", "/é", "/a b")
DOCUMENTS: Final = (
    *(b"", b" ", b"null", b"true", b" false ", b"-0", b"01", b"1.", b"-1.50e+07", b"+1", b"NaN"),
    *(
        b'"x"',
        b'"x',
        b'"\\u00e9\\n\\/\\""',
        b'"\\ud83d\\ude00"',
        b'"\\ud83d"',
        b'"\\x"',
        b'"\\u12g4"',
    ),
    *(b'"\x00"', b'"\t"', b"\xff", b'"\xc3\xa9"', b"1\x00", b"1 2", b"\xef\xbb\xbf1"),
    *(b"{}", b"[]", b"{,}", b"[1,]", b'{"a":1,}', b'{"a" 1}', b"{1:2}", b'{"a":1 "b":2}', b"[1 2]"),
    *(b'{"a": 1e400}', b'{"a": 12345678901234567890.10}', b'{"a":1,"a":"2"}', b'{"": "empty"}'),
    *(b'{"a":{"b":"c"}}', b'{"a":["x",{"c":true}]}', b'{"a":{"0":"name"}}', b'{"a":null}'),
    *(b'{"/~":"escaped"}', b'{"\xc3\xa9":1}', b'{"a b":[]}'),
    json.dumps({"a": {"b": "ü" * 500}}).encode(),
)
PARTS: Final = ("", "a", "-", "\\", "a|", "é-", "-\\", "\U0001f600")
LETTERS: Final = [
    code
    for code in range(0x10430)
    if chr(code).lower() != chr(code) and unicodedata.ucd_3_2_0.category(chr(code)) != "Cn"
]
"""Capital letters that both Python and Java know, whatever version of Unicode they have."""
AROUND_SIGMA: Final = "ΑΣ.-1'\u0301\u00adʰİ"
"""Characters that decide whether a sigma ends a word, which is another small letter."""
SPACES: Final = [
    *(code for code in range(0x10000) if chr(code).isspace()),
    *(0x00, 0x08, 0x180E, 0x200B, 0x2060, 0xFEFF),
]
DEEP: Final = tuple(
    b'{"a":1,"deep":' + b"[" * levels + inner + b"]" * levels + b"}"
    for levels in (DEPTH_MAX - 1, DEPTH_MAX, 900, 2000)
    for inner in (b"", b"7")
)


def test_the_interceptor_reads_json_as_the_template_of_a_route_does(tmp_path: Path) -> None:
    RINGFENCE.skip_if_missing()
    cases = [(pointer, document) for pointer in POINTERS for document in DOCUMENTS]
    cases += [("/a", document) for document in DEEP]
    told = stamped([Vector(f"json:{pointer}", None, (), each) for pointer, each in cases], tmp_path)
    for (pointer, document), line in zip(cases, told, strict=True):
        wanted = JsonField(pointer, in_key=False).of_document(document)
        if wanted is None:
            assert "is sent without a _DUPL_ID: " in line, (pointer, document, line)
        else:
            assert bytes.fromhex(line) == wanted, (pointer, document)


def test_the_interceptor_refuses_a_configuration_and_says_what_to_set(tmp_path: Path) -> None:
    RINGFENCE.skip_if_missing()
    wrong = ("", "keys", "header:", "counter", "json", "json:order", "json:/~2")
    told = stamped([Vector(each, None) for each in wrong], tmp_path)
    for choice, line in zip(wrong, told, strict=True):
        assert line.startswith(f"Invalid value {choice} for configuration ringfence.id: ")
        assert ("set it to key, header:NAME" in line) != ("begins with /" in line)


def test_the_interceptor_makes_the_ids_that_the_template_of_a_route_makes(tmp_path: Path) -> None:
    RINGFENCE.skip_if_missing()
    several = [
        Vector(f"x{{header:A}}{between}{{header:B}}y", None, (("A", one), ("B", other)))
        for between in ("", "-", "--", "\\", "\\-", "|", "a", "é", "-é", "\U0001f600")
        for one, other in itertools.product(map(str.encode, PARTS), repeat=2)
    ]
    words = [*map(chr, LETTERS), *map("".join, itertools.product(AROUND_SIGMA, repeat=3))]
    lowered = Vector("{lower:header:A}", None, (("A", " ".join(words).encode()),))
    spaces = [
        Vector("{trim:header:A}", None, (("A", f"{chr(code)}x{chr(code)}".encode()),))
        for code in SPACES
    ]
    cases = [*VECTORS, *several, lowered, *spaces]
    for case, line in zip(cases, stamped(cases, tmp_path), strict=True):
        message = record(0, *case.headers, key=case.key, value=case.value)
        wanted = some(identifier_of(case.template)).of(message, list(case.headers))
        if wanted is None:
            assert "is sent without a _DUPL_ID: " in line, (case, line)
        else:
            assert bytes.fromhex(line) == wanted, case


def test_the_interceptor_refuses_a_template_that_no_producer_can_follow(tmp_path: Path) -> None:
    RINGFENCE.skip_if_missing()
    told = stamped([Vector(each, None) for each in REFUSED], tmp_path)
    for template, line in zip(REFUSED, told, strict=True):
        assert line.startswith(f"Invalid value {template} for configuration ringfence.id: a"), line
        assert line.endswith("or leave the id to the route, whose id may be any template")
    (line,) = stamped([Vector("order-{key}}", None)], tmp_path)
    assert line.endswith("it names no field, or has a brace too many")


def stamped(cases: Sequence[Vector], folder: Path) -> list[str]:
    """The id that the interceptor gives to each message, in hexadecimal, or why it gives none."""
    encoded = ",".join(
        ":".join(
            "-" if part is None else (part.encode() if isinstance(part, str) else part).hex()
            for part in (case.template, case.key, case.value, *itertools.chain(*case.headers))
        )
        for case in cases
    )
    return RINGFENCE.run(program("Stamp"), folder, CASES=encoded).splitlines()


def test_the_transform_gives_a_record_the_id_that_its_configuration_names(tmp_path: Path) -> None:
    RINGFENCE.skip_if_missing()
    lines = RINGFENCE.run(program("Transform"), tmp_path).splitlines()
    refused = "of a record for orders cannot be an id"
    change = "Set field to text, a number or a time."
    assert dict(line.split(": ", 1) for line in lines) == {
        "offset": 'orders{"host":"h","path":"/a\\"b"}{"line":7,"position":42}',
        "no offset": "A record for orders has no source offset, so set field to a field that is its"
        " id, or set on.missing to pass.",
        "no offset, pass": "null",
        "sink": "Only records of a source connector have a source offset: set field to a field that"
        " is the id.",
        "sink, key": "k",
        "id": "o-17",
        "price": "1000",
        "paid": "86400000",
        "raw": "r",
        "not text": f"The field value.order.not text {refused}: it is not UTF-8 text. {change}",
        "none": "A record for orders has no field value.order.none, so change field, or set"
        " on.missing to pass.",
        "no field": f"The field value.order {refused}: it is a MapN. {change}",
        "tombstone": "A record for orders has no field value.id, so change field, or set on.missing"
        " to pass.",
        "struct": "99",
        "struct, none": "A record for orders has no field value.number, so change field, or set"
        " on.missing to pass.",
        "own": "null",
        "path": "Invalid value order.id for configuration field: begin it with key or value, as in"
        " value.order.id, or leave it out",
        "on.missing": "Invalid value skip for configuration on.missing: String must be one of:"
        " fail, pass",
    }


def test_the_jar_has_the_version_of_the_server() -> None:
    server = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    pom = ET.parse(ROOT / "clients" / "java" / "pom.xml").getroot()  # noqa: S314 - our own
    assert pom.findtext("{*}version") == server


def program(name: str) -> str:
    """A program beside the clients."""
    return (HERE / f"{name}.java").read_text("utf-8")
