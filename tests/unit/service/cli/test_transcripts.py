"""Shell sessions against the API of a fake service: all output, and on which stream."""

import os
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final, Self

import pytest

from ringfence_service.cli import cells, screen
from ringfence_service.queries.status import RouteCounts, ServiceStatus
from tests.api.fake_service import RESTORING_PARTITION, RUNNING, STARTING
from tests.unit.service.cli.conftest import Shell
from tests.unit.service.cli.transcript import replayed

FOLDER: Final = Path(__file__).parent / "transcripts"
RESTORING: Final = RUNNING._replace(
    partitions=(RESTORING_PARTITION,),
    phase="waiting",
    waiting_for="A topic is missing.",
    routes=(RouteCounts("orders", 10, no_id=2, compared=4, different=1),),
)
NOT_RUNNING: Final = {"restoring": RESTORING, "starting": STARTING}


@pytest.fixture(params=sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def status(file: Path) -> ServiceStatus:
    return NOT_RUNNING.get(file.stem, RUNNING)


class FixedTime(datetime):
    """An hour after the fake service started."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 1, 2, 4, 4, 5, tzinfo=tz)


@pytest.fixture(autouse=True)
def _fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cells, screen):
        monkeypatch.setattr(module, "datetime", FixedTime)
    monkeypatch.setattr("ringfence_main.plan._path", lambda: "native")


@pytest.mark.usefixtures("url")
def test_a_session_goes_as_it_is_written_down(file: Path, shell: Shell, user: Path) -> None:
    text = file.read_text("utf-8")

    def run(words: list[str], typed: str | None, piped: str) -> tuple[int, str, str]:
        return shell(*words, typed=typed, piped=piped)

    found = replayed(text, run, user)
    if os.environ.get("RINGFENCE_RECORD"):  # for a look at the difference
        file.write_text(found, "utf-8")
    assert found == text
