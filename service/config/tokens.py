"""API tokens: who may use the admin API, as lines `name roles sha256:digest` of a file.

The file holds digests only: a token has 256 random bits, so SHA-256 is enough to keep it from being
guessed, and a short text of somebody's choice is never a token.
No error repeats a line: it may contain a token.
"""

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

from service.credentials import TOKEN_CHARS_MIN

LEVELS: Final = ("viewer", "operator", "admin")
"""Each may do what those before it may."""

PAYLOAD_READ: Final = "payload:read"
"""Apart from the levels: who administrates need not see what messages hold."""

ROLES: Final = (*LEVELS, PAYLOAD_READ)

_PREFIX: Final = "rf_"

_NAME: Final = re.compile(r"[A-Za-z0-9._@-]{1,128}")

_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})")

_RESERVED: Final = frozenset({"anonymous", "peer"})

_FORM: Final = "write `name roles sha256:digest`, as `ringfence token NAME` prints it"


class TokenError(ValueError):
    """A line of the file that cannot be used: which, why, and how to mend it."""


class TokenEntry(NamedTuple):
    """One line."""

    name: str
    roles: frozenset[str]
    digest: str

    @property
    def line(self) -> str:
        """As it stands in the file."""
        return f"{self.name} {','.join(sorted(self.roles))} sha256:{self.digest}"


class Tokens:
    """All lines of a file."""

    def __init__(self, entries: tuple[TokenEntry, ...]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, token: str) -> TokenEntry | None:
        """The line of a token."""
        return None if len(token) < TOKEN_CHARS_MIN else self.by_digest(digest_of(token))

    def by_digest(self, digest: str) -> TokenEntry | None:
        """The line of a digest; every line is compared, in a time that tells nothing of them."""
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, digest):
                found = entry
        return found


def digest_of(token: str) -> str:
    """What the file holds of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return _PREFIX + secrets.token_urlsafe(32)


def entry_of(name: str, roles: str, token: str) -> TokenEntry:
    """The line of a new token; TokenError where name or roles cannot be."""
    return TokenEntry(_name(name, ""), _roles(roles, ""), digest_of(token))


def parse(text: str) -> Tokens:
    """Read a file; TokenError for the first line that is wrong."""
    entries: dict[str, TokenEntry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            entry = _entry(line.split(), f"line {number}: ")
            if entry.digest in entries:
                raise TokenError(f"line {number}: the token stands there twice; remove one line")
            entries[entry.digest] = entry
    return Tokens(tuple(entries.values()))


def _entry(words: list[str], place: str) -> TokenEntry:
    if len(words) != len(TokenEntry._fields):
        raise TokenError(f"{place}it has not three words; {_FORM}")
    digest = _DIGEST.fullmatch(words[2])
    if digest is None:
        raise TokenError(f"{place}the third word is no digest; {_FORM}")
    return TokenEntry(_name(words[0], place), _roles(words[1], place), digest[1])


def _name(name: str, place: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        allowed = "1 to 128 letters, digits, `.`, `_`, `@` and `-`, other than anonymous and peer"
        raise TokenError(f"{place}the name cannot be; allowed is {allowed}")
    return name


def _roles(text: str, place: str) -> frozenset[str]:
    roles = frozenset(filter(None, text.split(",")))
    if not roles or not roles <= set(ROLES):
        raise TokenError(f"{place}the roles are unknown; allowed is {', '.join(ROLES)}")
    return roles
