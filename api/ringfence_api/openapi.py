"""OpenAPI document: FastAPI's document, corrected to the responses of this API.

FastAPI describes its own default errors; errors of this API are problems. A resource declares its
specific errors; `default` describes those that any request can cause.
"""

from typing import Any, Final

from fastapi import FastAPI

from ringfence_api import problems
from ringfence_api.examples import add_example, examples
from ringfence_api.middleware.idempotency import HEADER, KEY_CHARS_MAX, REPLAYED
from ringfence_api.principal import EXTRA, FREE, AccessRules

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION: Final = """\
Observe and control Ringfence. Every error is a problem (RFC 9457) of type
`application/problem+json`. Every response has the header `X-Request-Id`: the one of the request, or
a generated one. Times are RFC 3339 in UTC; numeric fields have their unit in their name.
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
    """Describe the errors of a resource, and those that any request can cause."""
    described: Responses = {kind.status: _described(kind) for kind in (problems.INVALID, *kinds)}
    described["default"] = {
        "description": "; ".join(f"{kind.status}: {kind.title}" for kind in _ANY_ERROR) + ".",
        "content": _PROBLEM,
    }
    return described


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


_REQUEST_ID: Final = {"X-Request-Id": _header("Id of the request: as it was sent, or generated.")}
_REPLAYED: Final = {
    REPLAYED: _header("`true` if an earlier request with the same key got this response.")
}
ETAG: Final = {"ETag": _header("ETag of the document, for If-Match.")}
LOCATION: Final = {"Location": _header("Path of the created resource.")}


def tagged(*kinds: problems.ProblemKind) -> Responses:
    """Describe the responses of a resource with an ETag (`conditional.py` sends 304 and 412)."""
    return {
        **errors(*kinds, problems.STALE),
        200: {"headers": ETAG},
        304: {"description": "The document has not changed.", "headers": ETAG},
    }


def created(model: type) -> Responses:
    """Describe the response of a PUT that created a resource."""
    return {201: {"model": model, "description": "Created.", "headers": {**ETAG, **LOCATION}}}


TAGS: Final = [
    {"name": name, "description": description}
    for name, description in {
        "health": "Liveness, readiness and metrics.",
        "service": "Versions, status, partitions, workers, instances and the audit log.",
        "addresses": "Addresses, their remembered ids, and the cache size that they need.",
        "publishers": "Publishers, their sequence numbers and their sessions.",
        "routes": "Input topics, and where their records go.",
        "address settings": "How duplicates are recognised, by address pattern.",
        "settings": "All settings made over REST, and their history.",
        "dead letters": "Records that were not accepted, and redrives of them.",
    }.items()
]


class DocumentedApp(FastAPI):
    """An application whose OpenAPI document has the problem schema and the role per operation."""

    rules: AccessRules

    def openapi(self) -> dict[str, Any]:
        """Return the document; it is built once and cached."""
        if self.openapi_schema:
            return self.openapi_schema
        document = super().openapi()
        problem = problems.Problem.model_json_schema(ref_template=_SCHEMAS)
        document["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
        document["components"]["securitySchemes"] = _SCHEMES
        known = examples()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self._document_operation(path, method.upper(), operation)
                if operation["operationId"] in known:
                    add_example(path, operation, known[operation["operationId"]])
                for status, targets in _LINKS.get(operation["operationId"], {}).items():
                    operation["responses"][status]["links"] = {
                        name: {"operationId": name, "parameters": parameters}
                        for name, parameters in targets.items()
                    }
        return document

    def _document_operation(self, path: str, method: str, operation: dict[str, Any]) -> None:
        role = self.rules.role(path, method, operation)
        operation[EXTRA] = role
        if role != FREE:
            operation["security"] = [{name: []} for name in _SCHEMES]
        named = {each["name"] for each in operation.get("parameters", ())}
        if method == "POST" and HEADER not in named:
            operation["parameters"] = [*operation.get("parameters", ()), _KEY]
        for status, response in operation["responses"].items():
            headers = response.setdefault("headers", {})
            headers.update(_REQUEST_ID)
            if method == "POST" and status.startswith("2"):
                headers.update(_REPLAYED)
        if "304" in operation["responses"]:
            operation["parameters"] = [*operation.get("parameters", ()), *_CONDITIONS]


_PROBLEM: Final = {
    problems.MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS.format(model="Problem")}},
}
_SCHEMES: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the tokens file, or a JWT.",
    }
}
_KEY: Final = {
    "name": HEADER,
    "in": "header",
    "description": "A unique key of this change: a repeated request with it is not executed again.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARS_MAX},
}
_CONDITIONS: Final = [
    {
        "name": "If-None-Match",
        "in": "header",
        "description": "The ETag of a cached document: 304 if it is still current.",
        "schema": {"type": "string"},
    },
    {
        "name": "If-Match",
        "in": "header",
        "description": "The ETag of the expected document: 412 if it has changed.",
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
"""By operation and status: the operations that the response links to, and their parameters."""
_RETRY_AFTER: Final = {
    "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
}


def _described(kind: problems.ProblemKind) -> dict[str, Any]:
    described: dict[str, Any] = {"description": kind.title + ".", "content": _PROBLEM}
    if kind.status == problems.UNAVAILABLE.status:
        described["headers"] = _RETRY_AFTER
    return described
