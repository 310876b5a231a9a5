"""What an administrator does to a live cache: cases 20, 21 and 23, and the promises about it."""

from ringfence_service.dedup.record import KnownId
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdsAnswer,
    IdsQuery,
    ImportAnswer,
    ImportIds,
)
from ringfence_service.queries.registry import Query
from tests.cases.case import Manner, every_manner
from tests.cases.scene import INPUT, Scene
from tests.cases.trace import fates
from tests.support.helpers import answer, answered


def changed(scene: Scene, change: Query) -> int:
    told = answer(change, scene.life)
    assert isinstance(told, ChangeAnswer | ImportAnswer)
    return told.ids


def forget(scene: Scene, identifier: str) -> int:
    return changed(scene, ForgetId(INPUT, identifier.encode()))


def listed(scene: Scene) -> list[str]:
    told = answered(IdsAnswer, IdsQuery(INPUT, None, 100), scene.life)
    return [each.identifier.decode() for each in told.ids]


@every_manner
def test_case_20_a_forgotten_id_is_not_held_any_more(manner: Manner) -> None:
    scene = Scene({"id_cache_size": 10}, manner)
    scene.play("x y")
    assert scene.look_up("x").known
    assert forget(scene, "x") == 1
    scene.kill()
    assert not scene.look_up("x").known
    assert listed(scene) == ["y"]
    assert scene.play("x y") == fates("in dup")


@every_manner
def test_case_21_the_place_of_a_forgotten_id_is_used_in_its_turn(manner: Manner) -> None:
    scene = Scene({"id_cache_size": 3}, manner)
    scene.play("a b c")
    forget(scene, "b")
    assert scene.play("d e") == fates("in in")
    assert sorted(listed(scene)) == ["c", "d", "e"]
    assert scene.play("c a") == fates("dup in")


@every_manner
def test_case_23_clearing_tells_whether_there_was_anything(manner: Manner) -> None:
    scene = Scene(None, manner)
    scene.play("id1 id1 id2")
    assert changed(scene, ClearAddress("unused")) == 0
    assert changed(scene, ClearAddress(INPUT)) == 2
    scene.kill()
    assert scene.held() == 0
    assert scene.play("id1 id2 id1") == fates("in in dup")


@every_manner
def test_05_what_one_cache_holds_is_known_to_another_that_imports_it(manner: Manner) -> None:
    """Artemis can neither list nor forget one id, and its export loses ids that are no text."""
    first, second = Scene(None, manner), Scene(None, manner)
    first.play("a b c")
    told = answered(IdsAnswer, IdsQuery(INPUT, None, 100), first.life)
    known = [
        KnownId(e.identifier, e.sighting.offset, e.sighting.time_ms) for e in reversed(told.ids)
    ]
    binary = KnownId(b"\xff\x00")
    assert changed(second, ImportIds(INPUT, INPUT, 0, (*known, binary))) == 4
    second.kill()
    assert second.play("c b a d") == fates("dup dup dup in")
    assert forget(second, "a") == 1
    assert second.play("a") == fates("in")
