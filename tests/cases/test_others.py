"""Cases 60 to 62: what RabbitMQ's plugin for duplicates does, as far as it has its like here."""

import pytest

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT
from tests.cases.case import Case, Manner, every_case, every_manner
from tests.cases.scene import Scene
from tests.cases.trace import fates


@every_manner
@every_case(
    Case(61, "a ring of one forgets with each new id", "A B A", "in in in", {"id_cache_size": 1}),
    Case(
        61,
        "a window of one forgets with each new id",
        "A A B A",
        "in dup in in",
        {"strategy": "window", "window_size": 1},
    ),
    Case(
        61,
        "a copy after its time is let through",
        "@0 A @1 A @4 A",
        "in dup in",
        {"strategy": "window", "window_ms": 1000},
    ),
)
def test_rabbitmq(case: Case, manner: Manner) -> None:
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_case_62_an_id_is_not_freed_by_what_becomes_of_its_copy(strategy: str) -> None:
    """At the plugin's queues an id ends with its message; here with the ring or the window."""
    scene = Scene({"strategy": strategy})
    assert scene.play("A A | A A") == fates("in dup dup dup")


def test_case_62_an_id_that_was_dead_lettered_for_itself_was_never_taken() -> None:
    scene = Scene()
    scene.put([(DUPLICATE_ID, b"A"), (EXPIRES_AT, b"1")])
    assert scene.play("A A") == fates("in dup")
    assert scene.told()[0] == "expired"


@every_manner
def test_case_62_numbers_are_ids_as_text_and_null_is_none(manner: Manner) -> None:
    """There null is a key of its own, so that a second message without one is a duplicate."""
    scene = Scene(manner=manner)
    assert scene.play("42 4.2 42 4.2 4") == fates("in in dup dup in")
    for _ in range(2):
        scene.put([(DUPLICATE_ID, None)])
    scene.settle()
    assert scene.told()[-2:] == fates("in in")
