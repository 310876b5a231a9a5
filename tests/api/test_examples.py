"""Every operation has an example in the document, which is what the API answers to it.

With RINGFENCE_RECORD=1 what is answered now is written down, for a look at the difference.
"""

import json
import os
import re
from typing import Any

from httpx2 import Response

from ringfence_api.app import create_app
from ringfence_api.examples import FILE, examples
from ringfence_api.ports import ServiceView
from tests.api.guarded import client_of, operations

SHOWN = "ringfence_consumer_lag_records"
"""Of all metrics."""
STAMPS = {
    r'"\d{13}-[0-9a-f]{12}"': '"1767323046000-9e528484280d"',
    r'"request_id": ?"\w+"': '"request_id":"0123456789abcdef0123456789abcdef"',
    r'"duration_ms": ?\d+': '"duration_ms":7',
    r'"[\d-]{10}T[\d:]{8}\.\d+Z"': '"2026-01-02T03:04:06Z"',
}
"""What no two answers have in common."""


def _answer(answer: Response) -> Any:
    if answer.headers.get("content-type") != "application/json":
        return "\n".join(line for line in answer.text.splitlines() if SHOWN in line)
    text = answer.text
    for stamp, other in STAMPS.items():
        text = re.sub(stamp, other, text)
    return json.loads(text)


def test_every_operation_has_an_example_that_is_answered_as_it_says(view: ServiceView) -> None:
    assert examples().keys() == {told["operationId"] for _, _, told in operations(view)}
    client, found = client_of(view), dict[str, Any]()
    for name, example in examples().items():
        method, _, target = example["request"].partition(" ")
        asked: dict[str, Any] = {"json": example["body"]} if "body" in example else {}
        answer = client.request(method, target, headers=example.get("headers"), **asked)
        told = {key: value for key, value in example.items() if key not in {"status", "answer"}}
        found[name] = {**told, "status": answer.status_code}
        assert answer.is_success, (name, answer.text)
        if answer.content:
            found[name]["answer"] = _answer(answer)
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("RINGFENCE_RECORD"):
        FILE.write_text(text, encoding="utf-8")
    assert text == FILE.read_text(encoding="utf-8")


def test_the_document_shows_what_is_asked_and_what_is_answered(view: ServiceView) -> None:
    paths = create_app(view).openapi()["paths"]
    route = paths["/v1/routes/{name}"]["put"]
    assert route["requestBody"]["content"]["application/json"]["example"] == {
        "inputs": ["invoices"]
    }
    shown = {each["name"]: each["example"] for each in route["parameters"] if "example" in each}
    assert shown == {"name": "invoices", "If-None-Match": "*"}
    made = route["responses"]["201"]["content"]["application/json"]["example"]
    assert made["after"]["inputs"] == ["invoices"]
    letters = paths["/v1/dead-letters"]["get"]["parameters"]
    shown = {each["name"]: each["example"] for each in letters if "example" in each}
    assert shown == {"reason": ["duplicate"], "newest": True, "page_size": 10}


def test_each_success_of_an_operation_with_content_has_an_example(view: ServiceView) -> None:
    for method, path, told in operations(view):
        answers = [
            content
            for status, response in told["responses"].items()
            if status.startswith("2")
            for content in response.get("content", {}).values()
        ]
        assert not answers or any("example" in each for each in answers), (method, path)


def test_a_link_leads_to_an_operation_by_something_that_the_answer_holds(view: ServiceView) -> None:
    found = {told["operationId"]: told for _, _, told in operations(view)}
    linked = 0
    for told in found.values():
        for response in told["responses"].values():
            for link in response.get("links", {}).values():
                linked += 1
                taken = {each["name"] for each in found[link["operationId"]]["parameters"]}
                assert link["parameters"].keys() <= taken
                answer = next(iter(response["content"].values()))["example"]
                for source in link["parameters"].values():
                    if source.startswith("$response.body#"):
                        held = answer
                        for part in source.partition("#/")[2].split("/"):
                            held = held[int(part) if part.isdigit() else part]
    assert linked > 10
