"""The REST guide shows whole responses: each request of the page is sent, and what comes compared.

With RINGFENCE_RECORD=1 the current responses are written into the page, to see the difference.
"""

import argparse
import json
import os
import re
import shlex
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from httpx2 import Response
from starlette.testclient import TestClient

from ringfence_api import problems
from ringfence_api.ports import ServiceView
from ringfence_api.problems import ProblemKind
from tests.api.conversation import TOLD
from tests.api.guarded import TOKENS, client_of, operations
from tests.api.test_examples import STAMPS

PAGE: Final = Path(__file__).parents[2] / "docs" / "rest.md"
TEXT: Final = PAGE.read_text("utf-8")
EXCHANGE: Final = re.compile(
    r"```sh\n(?P<asked>curl .*?)```\n\n```(?P<kind>json|http)\n(?P<answer>.*?)```", re.DOTALL
)
HEADERS: Final = ("Content-Type", "WWW-Authenticate", *TOLD)
DOCUMENTS: Final = frozenset({"application/json", "application/problem+json"})
MORE_STAMPS: Final = {
    r'"trace_id": ?"\w+"': '"trace_id": "0123456789abcdef0123456789abcdef"',
    r'"source": ?"testclient"': '"source": "127.0.0.1"',
}
WIDTH: Final = 100


def curl(line: str, client: TestClient) -> Response:
    """Send what a command would send."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-X")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-i", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("url")
    words = shlex.split(line.replace("\\\n", " ").replace("$TOKEN", TOKENS["viewer"]))
    given = parser.parse_args(words[1:])
    headers = dict(each.split(": ", 1) for each in given.H)
    if given.json is not None:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    method = given.X or ("GET" if given.json is None else "POST")
    url = given.url.removeprefix("$URL")
    return client.request(method, url, headers=headers, content=(given.json or "").encode())


def shown(answer: Response, *, with_headers: bool) -> str:
    """Return a response as the page shows it."""
    text = answer.text
    for stamp, other in {**STAMPS, **MORE_STAMPS}.items():
        text = re.sub(stamp, other, text)
    if text and answer.headers.get("Content-Type") in DOCUMENTS:
        text = "\n".join(filled(json.loads(text)))
    if not with_headers:
        return f"{text}\n"
    head = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}"]
    head += [
        f"{name}: {answer.headers[name]}" for name in HEADERS if text and name in answer.headers
    ]
    return "\n".join([*head, *(["", text.rstrip("\n")] if text else [])]) + "\n"


def filled(value: Any, before: str = "", after: str = "", indent: str = "") -> Iterator[str]:
    """JSON in lines; what fits into one line has one, and short members share lines."""
    whole = f"{indent}{before}{json.dumps(value, ensure_ascii=False)}{after}"
    if len(whole) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield whole
        return
    is_dict = isinstance(value, dict)
    members = list(value.items()) if isinstance(value, dict) else [(None, each) for each in value]
    yield f"{indent}{before}{'{' if is_dict else '['}"
    line = ""
    for number, (name, each) in enumerate(members):
        label = "" if name is None else f"{json.dumps(name)}: "
        comma = "," if number < len(members) - 1 else ""
        text = f"{label}{json.dumps(each, ensure_ascii=False)}{comma}"
        if line and len(f"{indent}  {line} {text}") > WIDTH:
            yield f"{indent}  {line}"
            line = ""
        if len(f"{indent}  {text}") > WIDTH and isinstance(each, dict | list):
            yield from filled(each, label, comma, f"{indent}  ")
        else:
            line = f"{line} {text}" if line else text
    if line:
        yield f"{indent}  {line}"
    yield f"{indent}{'}' if is_dict else ']'}{after}"


def test_each_request_of_the_page_gets_the_response_below_it(
    view: ServiceView, asking: ServiceView
) -> None:
    usual, guarded = client_of(view), client_of(asking)
    start = TEXT.index("## Authentication")
    end = TEXT.index("\n## ", start)

    def replayed(exchange: re.Match[str]) -> str:
        is_guarded = start < exchange.start() < end
        answer = curl(exchange["asked"], guarded if is_guarded else usual)
        kind = exchange["kind"]
        assert kind == "http" or answer.is_success, (exchange["asked"], answer.text)
        assert (kind == "http") == (" -i " in exchange["asked"]), exchange["asked"]
        told = shown(answer, with_headers=kind == "http")
        return f"```sh\n{exchange['asked']}```\n\n```{kind}\n{told}```"

    found = EXCHANGE.sub(replayed, TEXT)
    if os.environ.get("RINGFENCE_RECORD"):
        PAGE.write_text(found, "utf-8")
    assert found == TEXT


def test_each_command_of_the_page_has_its_response_below_it() -> None:
    assert len(re.findall(r"^curl ", TEXT, re.MULTILINE)) == len(EXCHANGE.findall(TEXT)) > 30


def test_the_page_names_the_role_of_each_operation_and_shows_it(view: ServiceView) -> None:
    roles = {f"{method.upper()} {path}": told["x-role"] for method, path, told in operations(view)}
    rows = re.findall(
        r"^\| `((?:GET|PUT|POST|DELETE) [^`]+)` \| `([a-z:]+)` \|", TEXT, re.MULTILINE
    )
    assert [(name, role) for name, role in rows if roles[name] != role] == []
    assert len(rows) >= 20


def test_the_page_names_every_problem_with_its_status() -> None:
    kinds = {each for each in vars(problems).values() if isinstance(each, ProblemKind)}
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", TEXT, re.MULTILINE)
    assert sorted(rows) == sorted((kind.name, str(kind.status)) for kind in kinds)
