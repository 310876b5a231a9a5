"""Conversations with the API of a fake service: whole answers, one service for each file."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient

from ringfence_api.ports import ServiceView
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery, MemoryStatus
from ringfence_service.queries.inbox import QueryInbox
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.settings import EffectiveSetting
from ringfence_service.queries.status import ServiceStatus
from tests.api.conversation import Conversation
from tests.api.fake_letters import FakeLetters, FakeRedrives
from tests.api.fake_service import (
    FILE,
    RESTORING_PARTITION,
    RUNNING,
    STARTING,
    Clock,
    FakeAudit,
    FakeRegistry,
    FakeSettings,
    answering,
    make_view,
)
from tests.api.guarded import client_of
from tests.support.statuses import changed

FOLDER: Final = Path(__file__).parent / "conversations"
PHASES: Final[dict[str, ServiceStatus]] = {
    "it starts": STARTING,
    "it stops": RUNNING._replace(phase="stopping"),
    "it restores": RUNNING._replace(partitions=(*RUNNING.partitions, RESTORING_PARTITION)),
    "it only restores": RUNNING._replace(partitions=(RESTORING_PARTITION,)),
    "it owns nothing": RUNNING._replace(partitions=()),
    "it waits": RUNNING._replace(phase="waiting", waiting_for="The broker is away; start it."),
    "a partition moves": RUNNING._replace(
        partitions=(changed(RESTORING_PARTITION, partition=5),),
    ),
}


def late() -> FakeSettings:
    settings = FakeSettings()
    settings.is_applied = False
    return settings


SETTINGS: Final[dict[str, Callable[[], FakeSettings]]] = {
    "the file manages": lambda: FakeSettings(
        replace(FILE, service=replace(FILE.service, managed_by="file"))
    ),
    "newer settings": FakeSettings.foreign,
    "settings are applied later": late,
}


FULL: Final = MemoryStatus("in", 0, 20_000, 20_000, 1, 0, 199_990, 199_990)
"""100 messages a second."""


def knowing(strategy: str = "ring", *partitions: MemoryStatus) -> Callable[[Query], Answer]:
    """What a loop answers that knows this of each address."""
    told: dict[str, str | int] = {
        "id_cache_size": 20_000,
        "on_duplicate": "drop",
        "window_size": 10_000,
        "window_ms": 1_800_000,
        "strategy": strategy,
    }
    settings = {name: EffectiveSetting(value, "#") for name, value in told.items()}

    def answer(query: Query) -> Answer:
        assert isinstance(query, AddressQuery)
        return AddressAnswer(query.address, settings, partitions, complete=True)

    return answer


KNOWN: Final = {
    "its ring is full": knowing("ring", FULL),
    "its window is full": knowing("window", FULL),
    "it goes by numbers": knowing("sequence", FULL),
    "it remembers nothing": knowing("off", FULL),
    "nothing has come": knowing(),
}


def as_at_first(view: ServiceView) -> None:
    """What was changed is undone, so that one application serves many sections."""
    letters = FakeLetters()
    for old, new in (
        (view.registry, FakeRegistry()),
        (view.audit, FakeAudit()),
        (view.settings, FakeSettings()),
        (view.redrives, FakeRedrives(letters)),
    ):
        vars(old).update(vars(new))


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_conversation_goes_as_it_is_written_down(
    file: Path, view: ServiceView, clock: Clock, inbox: QueryInbox
) -> None:
    usual, loops = client_of(view), ExitStack()

    def whom(name: str) -> TestClient:
        if not name:
            as_at_first(view)
            return usual
        if name == "nobody else":
            return client_of(replace(view, fleet=None), without_state=True)
        if name in SETTINGS:
            return client_of(replace(view, settings=SETTINGS[name]()))
        if name in KNOWN:
            return client_of(loops.enter_context(answering(KNOWN[name])))
        return client_of(make_view(PHASES[name], clock, inbox))

    text = file.read_text("utf-8")
    with loops:
        found = Conversation(whom).replayed(text)
    if os.environ.get("RINGFENCE_RECORD"):
        file.write_text(found, "utf-8")
    assert found == text
