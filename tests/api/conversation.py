"""A conversation with the API: requests and responses, verbatim.

    == a sentence about what follows, for which the service is in its initial state
    @ newer settings                   the service asked from here on, see `test_conversations.py`
    > PUT /v1/routes/orders            a request
    > If-Match: {etag}                 a header; {etag}, {token} and {id} are the last returned
    > {"inputs": ["orders"]}           its body
    < 428 ETag: "x"                    the status, and the headers that say more
    ! match-required: say which ...    a problem, and each of its faults with its place
    {"routes": ...}                    or a document; `=` where it was returned before

With RINGFENCE_RECORD=1 the tests record the current responses, so that they can be compared.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any, Final

from httpx2 import Response
from starlette.testclient import TestClient

TOLD: Final = (
    "ETag",
    "Location",
    "Retry-After",
    "Allow",
    "Ringfence-Complete",
    "Idempotency-Replayed",
)
WIDTH: Final = 100


class Conversation:
    """Asks what stands in a text, and gives the text with what is answered."""

    def __init__(self, client_of: Callable[[str], TestClient]) -> None:
        self._client_of = client_of
        self._client = client_of("")
        self._said: dict[str, str] = {}
        self._answers: dict[str, str] = {}

    def replayed(self, text: str) -> str:
        """The same conversation with the answers that are given now."""
        found, lines = list[str](), text.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("== "):
                self._client = self._client_of("")
                found += ["", line]
            elif line.startswith("@ "):
                self._client = self._client_of(line[2:])
                found.append(line)
            elif line.startswith("> ") and not lines[number - 1].startswith("> "):
                asked = list(takewhile(lambda each: each.startswith("> "), lines[number:]))
                found += [*asked, *self._answered([each[2:] for each in asked])]
        return "\n".join(found).lstrip() + "\n"

    def _answered(self, asked: list[str]) -> Iterator[str]:
        method, _, path = self._filled(asked[0]).partition(" ")
        headers = [each for each in asked[1:] if re.match(r"[A-Z][\w-]+: ", each)]
        told = dict(self._filled(each).split(": ", 1) for each in headers)
        body = "\n".join(each for each in asked[1:] if each not in headers)
        typed = {"Content-Type": "application/json"} if body else {}
        answer = self._client.request(
            method, path, content=self._filled(body).encode(), headers={**typed, **told}
        )
        self._listen(answer)
        shown = "".join(
            f" {name}: {answer.headers[name]}" for name in TOLD if name in answer.headers
        )
        yield _without_stamps(f"< {answer.status_code}{shown}")
        lines = [_without_stamps(line) for line in _shown(answer)]
        first = self._answers.setdefault("\n".join(lines), asked[0])
        yield from lines if first == asked[0] or len(lines) < 3 else [f"= as to {first}"]

    def _filled(self, text: str) -> str:
        for name, value in self._said.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def _listen(self, answer: Response) -> None:
        document = _document(answer)
        heard = {
            "etag": answer.headers.get("ETag"),
            "token": document.get("next_page_token"),
            "id": document.get("id"),
        }
        self._said |= {name: value for name, value in heard.items() if isinstance(value, str)}


def _document(answer: Response) -> dict[str, Any]:
    is_json = answer.headers.get("Content-Type") in {"application/json", "application/problem+json"}
    document = answer.json() if is_json and answer.content else {}
    return document if isinstance(document, dict) else {}


def _shown(answer: Response) -> Iterator[str]:
    document = _document(answer)
    kind = str(document.get("type", ""))
    if kind.startswith("urn:ringfence:problem:"):
        yield f"! {kind.rpartition(':')[2]}: {document['detail']}"
        for fault in document.get("errors", ()):
            yield f"! {fault['pointer']}: {fault['detail']}"
    elif document:
        now = {"as_of": "now"} if "as_of" in document else {}
        yield from _written(document | now)
    else:
        yield from answer.text.splitlines()


def _written(value: object, before: str = "", indent: str = "") -> Iterator[str]:
    """JSON in lines that are filled; what does not fit into one has lines of its own."""
    whole = before + json.dumps(value, ensure_ascii=False)
    if len(whole) <= WIDTH or not isinstance(value, dict | list):
        yield whole
        return
    is_dict = isinstance(value, dict)
    members = value.items() if isinstance(value, dict) else ((None, each) for each in value)
    inner, line = indent + "  ", ""
    yield before + ("{" if is_dict else "[")
    for name, each in members:
        label = "" if name is None else f"{json.dumps(name)}: "
        text = label + json.dumps(each, ensure_ascii=False)
        if line and len(f"{inner}{line}, {text}") > WIDTH:
            yield inner + line
            line = ""
        if len(inner + text) > WIDTH:
            yield from _written(each, inner + label, inner)
        else:
            line = f"{line}, {text}" if line else text
    if line:
        yield inner + line
    yield indent + ("}" if is_dict else "]")


def _without_stamps(line: str) -> str:
    """Keep as much of an ETag as distinguishes it from others."""
    return re.sub(r"[0-9a-f]{32}", lambda found: found[0][:4], line)
