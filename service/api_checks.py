"""What `[api]` needs beside its single keys: who is let in, and the files that say so.

A service that listens where others can reach it says who may use it, or says that anybody may.
"""

import ssl
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from service import tokens
from service.errors import Problem
from service.sections import ApiSettings
from service.urls import is_loopback


def api_problems(api: ApiSettings) -> Iterator[Problem]:
    """Yield what is wrong with the section as a whole."""
    if not api.auth and not is_loopback(api.host):
        yield Problem(
            f'api.host is "{api.host}", which others can reach, and api.auth is not set',
            'write auth = "tokens" or "oidc" in [api], or auth = "none" to let anybody in',
        )
    yield from _token_problems(api)
    yield from _oidc_problems(api)
    yield from _tls_problems(api)
    yield from _secret_problems("peer_token_file", api.peer_token_file)
    yield from _secret_problems("session_key_file", api.session_key_file)


def exposed_files(api: ApiSettings) -> Iterator[str]:
    """A sentence for each file of secrets that every user of the machine can read."""
    for key in ("tokens_file", "peer_token_file", "session_key_file", "tls_key_file"):
        path = getattr(api, key)
        with suppress(OSError):
            if path and Path(path).stat().st_mode & stat.S_IROTH:
                yield (
                    f"{path} of api.{key} can be read by every user of this machine;"
                    " take that right away: chmod o-r"
                )


def _token_problems(api: ApiSettings) -> Iterator[Problem]:
    if not api.takes_tokens:
        if api.tokens_file:
            what = f'api.tokens_file is set, and api.auth is "{api.auth}"'
            yield Problem(what, 'write auth = "tokens", or remove tokens_file')
        return
    if not api.tokens_file:
        what = f'api.auth is "{api.auth}", and api.tokens_file is missing'
        yield Problem(what, "name a file that `ringfence token NAME --add-to FILE` writes")
        return
    text, problem = _read("tokens_file", api.tokens_file)
    if problem:
        yield problem
        return
    try:
        known = len(tokens.parse(text))
    except tokens.TokenError as fault:
        what, _, mend = str(fault).partition("; ")
        yield Problem(f"{api.tokens_file}, {what}", mend)
        return
    if not known and not api.takes_oidc:
        what = f"{api.tokens_file} holds no token, so nobody could use the API"
        yield Problem(what, "add a line with `ringfence token NAME --add-to FILE`")


def _oidc_problems(api: ApiSettings) -> Iterator[Problem]:
    if not api.takes_oidc:
        if api.oidc_issuer:
            what = f'api.oidc_issuer is set, and api.auth is "{api.auth}"'
            yield Problem(what, 'write auth = "oidc", or remove oidc_issuer')
        return
    for key in ("oidc_issuer", "oidc_audience", "oidc_algorithms"):
        if not getattr(api, key):
            what = f'api.auth is "{api.auth}", and api.{key} is missing'
            yield Problem(what, f"write {key} in [api], as the issuer names it")
    for key in ("oidc_issuer", "oidc_jwks_url"):
        url = urlsplit(getattr(api, key))
        if url.scheme == "http" and not is_loopback(url.hostname or ""):
            what = f"api.{key} is a plain http URL, so that anybody on the way could let himself in"
            yield Problem(what, "write an https URL")


def _tls_problems(api: ApiSettings) -> Iterator[Problem]:
    if bool(api.tls_cert_file) != bool(api.tls_key_file):
        what = "of api.tls_cert_file and api.tls_key_file only one is set"
        yield Problem(what, "set both, or neither")
    elif api.tls_client_ca_file and not api.tls_cert_file:
        what = "api.tls_client_ca_file is set without api.tls_cert_file"
        yield Problem(what, "set tls_cert_file and tls_key_file too, or remove it")
    elif api.tls_cert_file:
        try:
            tls_context(api)
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            what = f"the files of api.tls_cert_file, tls_key_file cannot be used: {reason}"
            yield Problem(what, "name a certificate chain and its key, as PEM, without a password")


def tls_context(api: ApiSettings) -> ssl.SSLContext:
    """What the API speaks TLS with; OSError or SSLError where the files do not serve."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # With an empty password a key that has one is an error, and no question on the terminal.
    context.load_cert_chain(api.tls_cert_file, api.tls_key_file, password="")
    if api.tls_client_ca_file:
        context.load_verify_locations(api.tls_client_ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _secret_problems(key: str, path: str) -> Iterator[Problem]:
    """A secret that a person made up can be guessed."""
    if not path:
        return
    text, problem = _read(key, path)
    if problem:
        yield problem
        return
    try:
        tokens.secret_of(text)
    except ValueError as fault:
        what = f"{path} of api.{key} {fault}"
        yield Problem(what, "write a random secret into it: openssl rand -hex 32")


def _read(key: str, path: str) -> tuple[str, Problem | None]:
    try:
        return Path(path).read_text(encoding="utf-8"), None
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
    return "", Problem(f"{path} of api.{key} cannot be read: {reason}", "name a readable file")
