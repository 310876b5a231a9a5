"""API tokens: who may use the admin API, as lines `name roles sha256:digest` of a file.

The file contains only digests. A token has 256 random bits, so SHA-256 is enough to protect it; a
shorter text, which a person may have chosen, is never accepted as a token.
No error quotes a line: it may contain a token.
"""

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

from ringfence_service.credentials import TOKEN_CHARS_MIN
from ringfence_service.errors import ConfigIssue

LEVELS: Final = ("viewer", "operator", "admin")
"""Access levels; each includes those before it."""

PAYLOAD_READ: Final = "payload:read"
"""Role beside the levels: an administrator need not see the payload of messages."""

ROLES: Final = (*LEVELS, PAYLOAD_READ)

_PREFIX: Final = "rf_"

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,128}")

_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")

_RESERVED: Final = frozenset({"anonymous", "peer"})

_FORM: Final = "write `name roles sha256:digest`, as `ringfence token NAME` prints it"


class TokenError(ValueError):
    """An invalid line of the file: its number with the reason, and the fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.issue = ConfigIssue(what, fix)

    def __str__(self) -> str:
        return str(self.issue)


class TokenEntry(NamedTuple):
    """One line of the file."""

    name: str
    roles: frozenset[str]
    digest: str

    @property
    def line(self) -> str:
        """Return the line as text."""
        return f"{self.name} {','.join(sorted(self.roles))} sha256:{self.digest}"


class Tokens:
    """The entries of a tokens file."""

    def __init__(self, entries: tuple[TokenEntry, ...]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, token: str) -> TokenEntry | None:
        """Return the entry of a token, or None."""
        return None if len(token) < TOKEN_CHARS_MIN else self.by_digest(digest_of(token))

    def by_digest(self, digest: str) -> TokenEntry | None:
        """Return the entry of a digest, or None; compares every entry in constant time."""
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry
        return found


def digest_of(token: str) -> str:
    """Return the digest of a token, as the file contains it."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return _PREFIX + secrets.token_urlsafe(32)


def entry_of(name: str, roles: str, token: str) -> TokenEntry:
    """Return the entry of a token; raise TokenError for an invalid name or role."""
    return TokenEntry(_name(name, ""), _roles(roles, ""), digest_of(token))


def parse(text: str) -> Tokens:
    """Parse the content of a file; raise TokenError for the first invalid line."""
    entries: dict[str, TokenEntry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _entry(line.split(), f"line {number}: ")
            if entry.digest in entries:
                raise TokenError(
                    f"line {number}: an earlier line has this token", "remove one line"
                )
            entries[entry.digest] = entry
    return Tokens(tuple(entries.values()))


def _entry(words: list[str], prefix: str) -> TokenEntry:
    if len(words) != len(TokenEntry._fields):
        raise TokenError(f"{prefix}it does not have three words", _FORM)
    digest = _DIGEST.fullmatch(words[2])
    if digest is None:
        raise TokenError(f"{prefix}the third word is not a digest", _FORM)
    return TokenEntry(_name(words[0], prefix), _roles(words[1], prefix), digest[1])


def _name(name: str, prefix: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        allowed = "1 to 128 letters, digits, `.`, `_`, `@` and `-`, other than anonymous and peer"
        raise TokenError(f"{prefix}the name is not allowed", f"use {allowed}")
    return name


def _roles(text: str, prefix: str) -> frozenset[str]:
    roles = frozenset(filter(None, text.split(",")))
    if not roles or not roles <= set(ROLES):
        raise TokenError(f"{prefix}the roles are unknown", f"use {', '.join(ROLES)}")
    return roles
