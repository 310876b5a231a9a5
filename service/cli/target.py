"""Target: the URL and credentials of the API, from options, the environment and contexts.

They take precedence in this order. A context is a named API in a file of the user. Its token is
sent only to its own URL. A token is never an argument, since every user of a machine can read the
arguments of a process.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from service.credentials import token_of
from service.errors import ExitCode, ExitError
from service.urls import url_problem

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
    context: str | None = None


class Context(NamedTuple):
    """The URL of a named API, and the files of its token and certificates."""

    url: str
    token_file: str | None = None
    ca_file: str | None = None


class Contexts(NamedTuple):
    """All contexts, and the name of the current one."""

    current: str | None
    by_name: Mapping[str, Context]


def where(
    options: TargetOptions, environ: Mapping[str, str], default_url: str = DEFAULT_URL
) -> ApiTarget:
    """Return the API to use: options override the environment, and that the current context.

    Raises ExitError for an invalid URL, an unknown context, or an unreadable token.
    """
    context = _context(options, environ)
    url = options.url or (None if options.context else environ.get("RINGFENCE_URL"))
    ca_file = options.ca_file or _path(environ.get("RINGFENCE_CA_FILE"))
    token = _read(options.token_file) if options.token_file else None
    if url is None and context is not None:
        token = token or (_read(Path(context.token_file)) if context.token_file else None)
        return ApiTarget(require_url(context.url), token, ca_file or _path(context.ca_file))
    return ApiTarget(require_url(url or default_url), token or _token_of(environ), ca_file)


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the contexts file, following the XDG base directory rules."""
    folder = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '~')}/.config"
    return Path(folder).expanduser() / "ringfence" / "contexts.toml"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """Return the contexts, none if there is no file; raise ExitError for an unreadable one."""
    path = contexts_file(environ)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        found = {name: Context(**each) for name, each in document.get("contexts", {}).items()}
    except FileNotFoundError:
        return Contexts(None, {})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sentence = f"{path} cannot be read ({error}); correct or remove it."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return Contexts(document.get("current"), found)


def write_contexts(contexts: Contexts, environ: Mapping[str, str]) -> Path:
    """Write the contexts file atomically, and return its path; raise ExitError on failure."""
    path = contexts_file(environ)
    # A JSON string is a valid TOML string.
    lines = [f"current = {json.dumps(contexts.current)}"] if contexts.current else []
    for name, context in sorted(contexts.by_name.items()):
        lines += ["", f"[contexts.{name}]"]
        lines += [
            f"{key} = {json.dumps(value)}" for key, value in context._asdict().items() if value
        ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text("\n".join([*lines, ""]), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        sentence = f"{path} cannot be written ({error}); set XDG_CONFIG_HOME to a folder of yours."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return path


def require_url(url: str) -> str:
    """Return the URL of an API without a trailing slash; raise ExitError if it is invalid."""
    problem = url_problem(url)
    if problem is not None:
        raise ExitError(ExitCode.USAGE, problem)
    return url.rstrip("/")


def require_name(name: str) -> str:
    """Return the name of a context; raise ExitError if it is invalid."""
    if not _NAME.fullmatch(name):
        sentence = f"{name!r} is not a context name: use 1 to 64 letters, digits, - and _."
        raise ExitError(ExitCode.USAGE, sentence)
    return name


def no_context(name: str, contexts: Contexts) -> ExitError:
    """Return the error for an unknown context; it lists the known ones."""
    known = ", ".join(sorted(contexts.by_name)) or "none"
    sentence = f"There is no context {name!r} (known: {known}); see ringfence context ls."
    return ExitError(ExitCode.USAGE, sentence)


def _context(options: TargetOptions, environ: Mapping[str, str]) -> Context | None:
    """Return the named or the current context, or None; raise ExitError if a name is unknown."""
    named = options.context or environ.get("RINGFENCE_CONTEXT")
    contexts = read_contexts(environ)
    if named:
        if named not in contexts.by_name:
            raise no_context(named, contexts)
        return contexts.by_name[named]
    return contexts.by_name.get(contexts.current or "")


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
