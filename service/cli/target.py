"""Target: which API a command asks, and as whom: from options, the environment and contexts.

They count in this order. A context is a named location in a file of the user's. Its token is sent
to its own URL and to no other. A token is never an argument, since every user of a machine can
read arguments.
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
    """One API, and what to show it."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca_file: Path | None = None


class TargetOptions(NamedTuple):
    """What the command line says of it."""

    url: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    context: str | None = None


class Context(NamedTuple):
    """A place with a name."""

    url: str
    token_file: str | None = None
    ca_file: str | None = None


class Contexts(NamedTuple):
    """All of them, and the one in use."""

    current: str | None
    by_name: Mapping[str, Context]


def where(
    asked: TargetOptions, environ: Mapping[str, str], default_url: str = DEFAULT_URL
) -> ApiTarget:
    """Return where to ask; options win over the environment, and that over the context in use."""
    context = _context(asked, environ)
    url = asked.url or (None if asked.context else environ.get("RINGFENCE_URL"))
    ca_file = asked.ca_file or _path(environ.get("RINGFENCE_CA_FILE"))
    token = _read(asked.token_file) if asked.token_file else None
    if url is None and context is not None:
        token = token or (_read(Path(context.token_file)) if context.token_file else None)
        return ApiTarget(require_url(context.url), token, ca_file or _path(context.ca_file))
    return ApiTarget(require_url(url or default_url), token or _token_of(environ), ca_file)


def contexts_file(environ: Mapping[str, str]) -> Path:
    """Where contexts are kept, by the rules of XDG."""
    folder = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '~')}/.config"
    return Path(folder).expanduser() / "ringfence" / "contexts.toml"


def read_contexts(environ: Mapping[str, str]) -> Contexts:
    """Return the contexts; none where there is no file."""
    path = contexts_file(environ)
    try:
        told = tomllib.loads(path.read_text("utf-8"))
        found = {name: Context(**each) for name, each in told.get("contexts", {}).items()}
    except FileNotFoundError:
        return Contexts(None, {})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        sentence = f"{path} cannot be read ({error}); mend it or remove it."
        raise ExitError(ExitCode.USAGE, sentence) from error
    return Contexts(told.get("current"), found)


def write_contexts(contexts: Contexts, environ: Mapping[str, str]) -> Path:
    """Keep them; a reader sees the old file or the new one."""
    path = contexts_file(environ)
    # A string of JSON is one of TOML as well.
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
    """Return the URL of an API without a slash at its end; ExitError for what is none."""
    problem = url_problem(url)
    if problem is not None:
        raise ExitError(ExitCode.USAGE, problem)
    return url.rstrip("/")


def require_name(name: str) -> str:
    """Return the name of a context; ExitError for what is none."""
    if not _NAME.fullmatch(name):
        sentence = f"{name!r} is no name of a context: 1 to 64 letters, digits, - and _."
        raise ExitError(ExitCode.USAGE, sentence)
    return name


def no_context(name: str, contexts: Contexts) -> ExitError:
    """Tell that a context is not known, and which are."""
    known = ", ".join(sorted(contexts.by_name)) or "none"
    sentence = f"There is no context {name!r} (known: {known}); see ringfence context ls."
    return ExitError(ExitCode.USAGE, sentence)


def _context(asked: TargetOptions, environ: Mapping[str, str]) -> Context | None:
    """The context that counts: one that was named has to be there."""
    named = asked.context or environ.get("RINGFENCE_CONTEXT")
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


def _token(text: str, place: str) -> str:
    try:
        return token_of(text)
    except ValueError as error:
        raise _no_token(place, str(error)) from error


def _no_token(place: str, reason: str) -> ExitError:
    sentence = f"The token cannot be read from {place} ({reason}); name a file that holds one."
    return ExitError(ExitCode.USAGE, sentence)


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
