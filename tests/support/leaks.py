"""Leaks: no secret that a test uses appears in what is printed or logged while it runs.

A pytest plugin, which all tests use. It notes each token and each shared secret as the code under
test takes it, and each that a file of a process's configuration holds, and searches the output of
the test and of the processes that it started. A failure names the place, and not the secret.
"""

import io
import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from ringfence_service import credentials
from ringfence_service.config import tokens

CHARS_MIN: Final = 24
"""Shorter texts, which tests use as tokens that are none, stand anywhere."""
_MADE: Final = re.compile(r"rf_[A-Za-z0-9_-]{43}")
_FILES: Final = re.compile(r'(?:peer_token_file|session_key_file) = "([^"\n]+)"')
_SECRETS: Final[set[str]] = set()


def note(secret: str) -> None:
    """Have it be looked for from now on."""
    if len(secret) >= CHARS_MIN:
        _SECRETS.add(secret)


def has_secret(text: str) -> bool:
    """Whether a secret stands in it."""
    return _MADE.search(text) is not None or any(each in text for each in _SECRETS)


def _noting(module: ModuleType, name: str) -> None:
    """Patch the function for later imports: it notes its result, or else its last argument."""
    real: Callable[..., Any] = getattr(module, name)

    def noted(*given: str) -> Any:
        answer = real(*given)
        note(answer if isinstance(answer, str) else given[-1])
        return answer

    setattr(module, name, noted)


_noting(tokens, "entry_of")
_noting(credentials, "secret_of")
_noting(credentials, "token_of")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that has leaked a secret."""
    report = yield
    if call.when == "teardown" and report.passed:
        places = [place for place, text in _told(item) if has_secret(text)]
        if places:
            report.outcome = "failed"
            report.longrepr = f"a secret was leaked: {', '.join(places)}"
    return report


def _told(item: pytest.Item) -> Iterator[tuple[str, str]]:
    """What was printed and logged, with where."""
    for when, key, text in item._report_sections:
        yield f"captured {key} of the {when}", text
    told: dict[str, object] = getattr(item, "funcargs", None) or {}
    logged, folder = told.get("logged"), told.get("tmp_path")
    if isinstance(logged, io.StringIO):
        yield "the log", logged.getvalue()
    if isinstance(folder, Path):
        for config in filter(Path.is_file, folder.rglob("*.toml")):
            for name in _FILES.findall(config.read_text(errors="replace")):
                if Path(name).is_file():
                    note(Path(name).read_text(errors="replace").strip())
        for log in filter(Path.is_file, folder.rglob("*.log")):
            yield str(log), log.read_text(errors="replace")
