"""Target: the URL and credentials of the API, from options and the environment.

Options override the environment. A token is never an argument, since every user of a machine can
read the arguments of a process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ringfence_service.credentials import token_of
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.urls import url_problem

DEFAULT_URL: Final = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class ApiTarget:
    """The URL and credentials of an API."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None


class TargetOptions(NamedTuple):
    """The options of the command line that select the API."""

    url: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None


def where(
    options: TargetOptions, environ: Mapping[str, str], default_url: str = DEFAULT_URL
) -> ApiTarget:
    """Return the API to use; raise ExitError for an invalid URL or an unreadable token."""
    url = options.url or environ.get("RINGFENCE_URL") or default_url
    token = _read(options.token_file) if options.token_file else _token_of(environ)
    ca_file = options.ca_file or _path(environ.get("RINGFENCE_CA_FILE"))
    return ApiTarget(require_url(url), token, ca_file)


def require_url(url: str) -> str:
    """Return the URL of an API without a trailing slash; raise ExitError if it is invalid."""
    problem = url_problem(url)
    if problem is not None:
        raise ExitError(ExitCode.USAGE, problem)
    return url.rstrip("/")


def _token_of(environ: Mapping[str, str]) -> str | None:
    if token := environ.get("RINGFENCE_TOKEN"):
        return _token(token, "RINGFENCE_TOKEN")
    path = _path(environ.get("RINGFENCE_TOKEN_FILE"))
    return None if path is None else _read(path)


def _read(path: Path) -> str:
    try:
        return _token(path.expanduser().read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise _no_token(str(path), "it is not text in UTF-8") from error
    except OSError as error:
        raise _no_token(str(path), error.strerror or "it cannot be opened") from error


def _token(text: str, origin: str) -> str:
    try:
        return token_of(text)
    except ValueError as error:
        raise _no_token(origin, str(error)) from error


def _no_token(origin: str, reason: str) -> ExitError:
    sentence = f"The token cannot be read from {origin} ({reason}); name a file that holds one."
    return ExitError(ExitCode.USAGE, sentence)


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
