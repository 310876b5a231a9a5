"""API errors: a problem document as a sentence for stderr and an exit code.

Exit codes: 0 done, 1 the answer is no, 2 invalid request, 3 not found, 4 conflict, 5 not allowed,
6 unreachable (docs/cli.md).
"""

from collections.abc import Mapping
from typing import Any, Final

from ringfence_service.errors import AdminExit, ExitCode, ExitError
from ringfence_service.printable import visible

NOT_FOUND: Final = 404
_PREFIX: Final = "urn:ringfence:problem:"
_CODES: Final[Mapping[int, ExitCode | AdminExit]] = {
    400: ExitCode.USAGE,
    401: AdminExit.NOT_ALLOWED,
    403: AdminExit.NOT_ALLOWED,
    NOT_FOUND: AdminExit.NOT_FOUND,
    405: ExitCode.USAGE,
    406: ExitCode.USAGE,
    409: AdminExit.CONFLICT,
    412: AdminExit.CONFLICT,
    413: ExitCode.USAGE,
    415: ExitCode.USAGE,
    421: AdminExit.UNREACHABLE,
    422: ExitCode.USAGE,
    428: ExitCode.USAGE,
    429: AdminExit.UNREACHABLE,
    503: AdminExit.UNREACHABLE,
}
_NO: Final = frozenset({"not-possible"})
"""Problem types of a valid request whose answer is no."""
_NEXT: Final[Mapping[int, str]] = {
    401: "Name a token file with --token-file or RINGFENCE_TOKEN_FILE.",
    403: "Use a token whose role allows it.",
    412: "It was changed in the meantime: run the command again.",
    429: "Run the command again later.",
    503: "Run the command again, or wait longer with --timeout.",
}


class ApiError(ExitError):
    """An error response of the API; `kind` is its problem type without the URN prefix."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.kind = str(problem.get("type", "")).removeprefix(_PREFIX)
        super().__init__(_code(status, self.kind), _sentence(status, problem))


def _code(status: int, kind: str) -> ExitCode | AdminExit:
    if kind in _NO:
        return ExitCode.NO
    # A response without a problem type comes from a proxy, not from the service.
    return _CODES.get(status, ExitCode.NO if kind else AdminExit.UNREACHABLE)


def _sentence(status: int, problem: Mapping[str, Any]) -> str:
    """Return the detail, each error that it does not contain, and what to do next."""
    detail = str(problem.get("detail") or problem.get("title") or f"It answered {status}.")
    lines = [detail]
    faults = [each for each in problem.get("errors") or () if str(each.get("detail")) not in detail]
    lines += [f"{each.get('pointer')}: {each.get('detail')}" for each in faults]
    if status in _NEXT:
        lines.append(_NEXT[status])
    if status >= 500 and status != 503:
        lines.append(f"Search the service's log for {problem.get('trace_id')}.")
    return "\n".join(map(visible, lines))
