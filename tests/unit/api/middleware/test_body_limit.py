"""What one instance passes on to another may be larger than what came."""

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from api import problems
from api.auth.authorize import RULE
from api.middleware.body_limit import BodyLimitMiddleware
from api.principal import AccessRule

BYTES_MAX = 100


async def answered(path: str, size: int, *, is_told: bool) -> int:
    statuses: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    pieces = [b"x" * 10] * (size // 10)

    async def receive() -> Message:
        pieces.pop()
        return {"type": "http.request", "body": b"x" * 10, "more_body": bool(pieces)}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    length = [(b"content-length", str(size).encode())] if is_told else []
    scope = {"type": "http", "path": path, "headers": length, RULE: AccessRule("viewer", path)}
    problems.set_trace_id(scope, "r")
    await BodyLimitMiddleware(app, BYTES_MAX)(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("/v1/ids:lookup", 100, 200),
        ("/v1/ids:lookup", 110, 413),
        ("/v1/internal/questions", 400, 200),
        ("/v1/internal/questions", 410, 413),
    ],
)
def test_a_body_may_be_as_large_as_its_path_allows(
    path: str,
    size: int,
    status: int,
    is_told: bool,  # noqa: FBT001 - as pytest hands it
) -> None:
    assert anyio.run(lambda: answered(path, size, is_told=is_told)) == status
