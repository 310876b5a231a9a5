"""Examples of every operation in the OpenAPI document: a request and its response.

They are kept in `examples.json` under the operation id; a test sends each request and compares the
response.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NotRequired, TypedDict
from urllib.parse import parse_qsl, unquote

FILE: Final = Path(__file__).with_name("examples.json")


class OperationExample(TypedDict):
    """One request and its response; a body that is not JSON is a string."""

    request: str
    """The method, and the path with its query."""
    headers: NotRequired[dict[str, str]]
    body: NotRequired[Any]
    status: int
    answer: NotRequired[Any]


def examples() -> dict[str, OperationExample]:
    """Read the examples, by operation id."""
    found: dict[str, OperationExample] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def add_example(path: str, operation: dict[str, Any], example: OperationExample) -> None:
    """Add an example to the parameters, the request body and the response of an operation."""
    sent_path, _, query = example["request"].partition(" ")[2].partition("?")
    values = {"path": _parts(path, sent_path), "query": dict(parse_qsl(query))}
    values["header"] = example.get("headers", {})
    for parameter in operation.get("parameters", ()):
        if (value := values[parameter["in"]].get(parameter["name"])) is not None:
            parameter["example"] = _typed(value, parameter["schema"])
    if "body" in example:
        operation["requestBody"]["content"]["application/json"]["example"] = example["body"]
    if "answer" in example:
        content = operation["responses"][str(example["status"])]["content"]
        next(iter(content.values()))["example"] = example["answer"]


def _parts(template: str, path: str) -> Mapping[str, str]:
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
    found = re.fullmatch(pattern, path)
    parts = {} if found is None else found.groupdict()
    return {name: unquote(part) for name, part in parts.items()}


def _typed(value: str, schema: Mapping[str, Any]) -> object:
    kinds = {each.get("type") for each in (schema, *schema.get("anyOf", ()))}
    if "array" in kinds:
        return [value]
    return json.loads(value) if kinds & {"integer", "boolean"} else value
