"""OpenAPI document: the description, adjusted to what the API really answers.

FastAPI describes its own default errors; errors of this API are problems. A resource declares its
own errors; `default` stands for those of any request.
"""

from typing import Any, Final

from fastapi import FastAPI

from api import problems
from api.examples import add_example, examples
from api.middleware.idempotency import HEADER, KEY_CHARS_MAX, REPLAYED
from api.principal import EXTRA, FREE, AccessRules

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION: Final = """\
What Ringfence does and remembers. Every error is a problem (RFC 9457) of type
`application/problem+json`. Every response carries `X-Request-Id`: yours, or one made here.
Times are RFC 3339 in UTC; numbers carry their unit in their name.
"""
_SCHEMAS: Final = "#/components/schemas/{model}"
_ANY_ERROR: Final = (
    problems.MALFORMED,
    problems.UNAUTHENTICATED,
    problems.FORBIDDEN,
    problems.ORIGIN_REFUSED,
    problems.KEY_IN_PROGRESS,
    problems.TOO_LARGE,
    problems.UNSUPPORTED,
    problems.WRONG_HOST,
    problems.KEY_REUSED,
    problems.TOO_MANY_FAILURES,
    problems.INTERNAL,
    problems.NOT_AUDITED,
)


def errors(*kinds: problems.ProblemKind) -> Responses:
    """Describe the errors of a resource, and those that any request can meet."""
    described: Responses = {kind.status: _described(kind) for kind in (problems.INVALID, *kinds)}
    described["default"] = {
        "description": "; ".join(f"{kind.status}: {kind.title}" for kind in _ANY_ERROR) + ".",
        "content": _PROBLEM,
    }
    return described


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


_REQUEST_ID: Final = {"X-Request-Id": _header("Of the request: yours, or one made here.")}
_REPLAYED: Final = {REPLAYED: _header("`true` where the reply to the same key is sent again.")}
ETAG: Final = {"ETag": _header("Of the document, as If-Match takes it.")}
LOCATION: Final = {"Location": _header("The path of what was made.")}


def tagged(*kinds: problems.ProblemKind) -> Responses:
    """Describe the answers of a resource with an ETag; see `conditional.py`."""
    return {
        **errors(*kinds, problems.STALE),
        200: {"headers": ETAG},
        304: {"description": "You have it already.", "headers": ETAG},
    }


def made(model: type) -> Responses:
    """Describe what a PUT answers that has made something."""
    return {201: {"model": model, "description": "Made.", "headers": {**ETAG, **LOCATION}}}


TAGS: Final = [
    {"name": name, "description": description}
    for name, description in {
        "health": "Whether it lives, is ready, and what it counts.",
        "service": "What runs, which partitions it owns, and who has changed what.",
        "addresses": "What is remembered of an address, its ids, and how large it has to be.",
        "publishers": "How far publishers have come, and their sessions.",
        "routes": "Which topics are read, and where their records go.",
        "address settings": "How duplicates are recognised, by pattern of address.",
        "settings": "All that is set over REST, and its history.",
        "dead letters": "What was not accepted and why, and how it is sent again.",
    }.items()
]


class DocumentedApp(FastAPI):
    """An application whose OpenAPI document holds the schema of a problem, and who may do what."""

    rules: AccessRules

    def openapi(self) -> dict[str, Any]:
        """Return the document; FastAPI makes it once and keeps it."""
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        problem = problems.Problem.model_json_schema(ref_template=_SCHEMAS)
        document["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
        document["components"]["securitySchemes"] = _SCHEMES
        known = examples()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self._tell_rules(path, method.upper(), operation)
                if operation["operationId"] in known:
                    add_example(path, operation, known[operation["operationId"]])
                for status, leads_to in _LINKS.get(operation["operationId"], {}).items():
                    operation["responses"][status]["links"] = {
                        name: {"operationId": name, "parameters": parameters}
                        for name, parameters in leads_to.items()
                    }
        return document

    def _tell_rules(self, path: str, method: str, operation: dict[str, Any]) -> None:
        role = self.rules.role(path, method, operation)
        operation[EXTRA] = role
        if role != FREE:
            operation["security"] = [{name: []} for name in _SCHEMES]
        named = {each["name"] for each in operation.get("parameters", ())}
        if method == "POST" and HEADER not in named:
            operation["parameters"] = [*operation.get("parameters", ()), _KEY]
        for status, response in operation["responses"].items():
            told = response.setdefault("headers", {})
            told.update(_REQUEST_ID)
            if method == "POST" and status.startswith("2"):
                told.update(_REPLAYED)
        if "304" in operation["responses"]:
            operation["parameters"] = [*operation.get("parameters", ()), *_CONDITIONS]


_PROBLEM: Final = {
    problems.MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS.format(model="Problem")}},
}
_SCHEMES: Final = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token, or a JWT."}
}
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "description": "A name for this change: sent again under it, it is not made again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
}
_CONDITIONS: Final = [
    {
        "name": "If-None-Match",
        "in": "header",
        "description": "The ETag of what you have: 304 where it is that still.",
        "schema": {"type": "string"},
    },
    {
        "name": "If-Match",
        "in": "header",
        "description": "The ETag of what you want: 412 where it is another by now.",
        "schema": {"type": "string"},
    },
]


def _first(list_name: str, field: str) -> str:
    return f"$response.body#/{list_name}/0/{field}"


_LETTER: Final = {name: _first("dead_letters", name) for name in ("topic", "partition", "offset")}
_ID: Final = {"id": "$response.body#/id"}
_LINKS: Final[dict[str, dict[str, dict[str, dict[str, str]]]]] = {
    "addresses": {
        "200": {
            "address_by_path": {"address": _first("addresses", "address")},
            "ids_by_path": {"address": _first("addresses", "address")},
        }
    },
    "ids_by_path": {
        "200": {"id_by_path": {"address": "$request.path.address", "id": _first("ids", "id")}}
    },
    "publishers": {"200": {"publisher": {"name": "$response.body#/publishers/0"}}},
    "open_session": {
        "200": {"end_session": {"name": "$request.path.name", "user": "$request.body#/user"}}
    },
    "routes": {"200": {"route": {"name": _first("routes", "name")}}},
    "put_route": {"201": {"route": {"name": "$request.path.name"}}},
    "address_settings": {
        "200": {"address_setting": {"pattern": _first("address_settings", "pattern")}}
    },
    "put_by_path": {"201": {"address_setting": {"pattern": "$request.path.pattern"}}},
    "revisions": {"200": {"revision": {"revision": _first("revisions", "revision")}}},
    "dead_letters": {"200": {"dead_letter": _LETTER}},
    "begin": {"202": {"redrive": _ID, "cancel": _ID}},
    "all_redrives": {"200": {"redrive": {"id": _first("redrives", "id")}}},
}
"""Of an operation and a status, the operations that its answer leads to, and their parameters."""
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}


def _described(kind: problems.ProblemKind) -> dict[str, Any]:
    described: dict[str, Any] = {"description": kind.title + ".", "content": _PROBLEM}
    if kind.status == problems.UNAVAILABLE.status:
        described["headers"] = _RETRY_AFTER
    return described
