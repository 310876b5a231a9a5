"""Whatever a publisher calls things, no character that a command prints acts on the terminal."""

import json
import re
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx2
import pytest

from tests.unit.service.cli.conftest import Ran, Shell
from tests.unit.service.cli.test_registry import ALL

EVIL: Final = "e\x1b]0;x\x07\x1b[2J\rm\x9b2J\u202e\u200b\u2028"
OURS: Final = re.compile(r"\r\x1b\[K|\x1b\[(?:[0-9;]*m|H|\?[0-9]+[hl])")
"""A line that is written over, styles, and a page that is drawn in its place."""
AS_IT_IS: Final = frozenset(
    {"state", "phase", "mode", "strategy", "type", "next_page_token", "etag"}
)
"""What commands decide by: no publisher chooses these."""
NAMES: Final = re.compile("orders|till-7")
QUIET: Final = frozenset({"dead-letter summary", "dead-letter tail", "settings export"})
"""The fake service has nothing for these, or they write a file."""
FILES: Final = re.compile(r"[\w./-]+\.(?:ndjson|json|toml|txt)")


def evil(told: Any, key: str = "") -> Any:
    """The same document, with EVIL behind whatever may be a name or a sentence."""
    match told:
        case dict():
            return {name: evil(each, name) for name, each in told.items()}
        case list():
            return [evil(each, key) for each in told]
        case str() if key not in AS_IT_IS and not _is_time(told):
            return told + EVIL
        case _:
            return told


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the API tell EVIL everywhere."""
    send: Callable[..., httpx2.Response] = httpx2.Client.send

    def sent(client: httpx2.Client, request: httpx2.Request, **how: Any) -> httpx2.Response:
        answer = send(client, request, **how)
        answer.read()
        lines = [line for line in answer.text.split("\n") if line.strip()]
        told = "\n".join(json.dumps(evil(json.loads(line)), ensure_ascii=False) for line in lines)
        status, headers = answer.status_code, {"ETag": answer.headers.get("etag", "")}
        return httpx2.Response(status, headers=headers, text=told, request=request)

    monkeypatch.setattr(httpx2.Client, "send", sent)


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What goes on until Ctrl-C gets it after the first look; files of examples are there."""

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    for module in ("screen", "render", "dead_letters", "redrives"):
        clock = SimpleNamespace(sleep=interrupt)
        monkeypatch.setattr(f"ringfence_service.cli.{module}.time", clock, raising=False)
    monkeypatch.chdir(tmp_path)


def examples(name: str) -> list[list[str]]:
    """The words of the examples that its help has."""
    lines = [line.strip() for line in (ALL[name].epilog or "").splitlines() if "ringfence" in line]
    told = [re.split(r" [|<>] | <<< ", line)[0] for line in lines]
    # By a function: EVIL is no template of a replacement.
    return [[NAMES.sub(lambda _: EVIL, word) for word in shlex.split(line)[1:]] for line in told]


def check_seen(ran: Ran, *, terminal: bool) -> None:
    for told in (ran.out, ran.err):
        text = OURS.sub("", told) if terminal else told.replace("\t", "")
        assert not {each for each in text if not each.isprintable() and each != "\n"}, told


@pytest.mark.usefixtures("url", "poisoned")
@pytest.mark.parametrize("name", ALL)
def test_no_command_lets_a_character_act_on_the_terminal(name: str, shell: Shell) -> None:
    options = {option for param in ALL[name].params for option in param.opts}
    ways: list[tuple[list[str], str | None]] = [([], None), ([], "y\n")]
    ways += [(["--json"], "y\n")] if "--json" in options else []
    ways += [(["--yes"], None)] if "--yes" in options else []
    for change in ("address clear orders --yes", "pause orders"):  # so that there is a history
        assert shell(*change.split()).code == 0
    told = ""
    for words in examples(name):
        for file in filter(FILES.fullmatch, words):
            content = {"id": EVIL} if file.endswith("ndjson") else {}
            Path(file).write_text(json.dumps(content) + "\n", "utf-8")
        for more, typed in ways:
            ran = shell(*words, *more, typed=typed, piped="id-1\n")
            check_seen(ran, terminal=typed is not None)
            told += ran.out + ran.err
    assert name in QUIET or re.search(r"\\x1b|\\u001b", told)
