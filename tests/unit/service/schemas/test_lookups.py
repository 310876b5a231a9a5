"""Which schemas are asked for and when, and what a failure proves about an id."""

import asyncio
import itertools
import threading

import pytest

from ringfence_service.schemas import lookups as module
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_service.schemas.lookups import (
    AT_ONCE,
    FRUITLESS_MAX,
    FRUITLESS_PER_S,
    GRACE_S,
    REMEMBERED_S,
    WANTED_MAX,
    LookupPlan,
    Lookups,
)
from ringfence_service.schemas.registry import RegisteredSchema
from tests.fakes.schema_registry import FakeSchemas
from tests.support.helpers import some
from tests.support.waiting import eventually

STRING = RegisteredSchema("AVRO", '"string"')
LIMIT_S = 30


def planned(*numbers: int, route: str = "a") -> LookupPlan:
    plan = LookupPlan("http://r")
    for number in numbers:
        plan.want(number, route)
    return plan


def asked(plan: LookupPlan, now_s: float = 0.0) -> list[int]:
    return list(iter(lambda: plan.next(now_s), None))


def refused(plan: LookupPlan, number: int, now_s: float) -> bool:
    assert plan.next(now_s) == number
    return plan.failed(number, "answered 403: no", is_there=True, now_s=now_s)


def test_so_many_are_asked_for_at_a_time_and_each_once() -> None:
    plan = planned(*range(1, 10))
    assert asked(plan) == list(range(1, AT_ONCE + 1))
    plan.answered(1, is_found=True)
    assert asked(plan) == [AT_ONCE + 1]
    plan.want(2, "a")
    assert asked(plan) == []


def test_routes_take_turns() -> None:
    plan = planned(*range(1, 100), route="flood")
    plan.want(500, "clean")
    assert 500 in asked(plan)[:2]


def test_an_id_that_another_route_wants_as_well_does_not_wait_behind_that_ones() -> None:
    plan = planned(*range(1, 100), route="flood")
    plan.want(99, "clean")
    assert 99 in asked(plan)[:2]
    plan.answered(99, is_found=True)
    assert plan.awaited(99) is None


def test_a_route_that_names_ids_without_a_schema_runs_out_of_its_budget_and_no_other() -> None:
    plan, now_s, count = planned(), 0.0, 0
    for number in range(1, 1_000):
        plan.want(number, "flood")
    for _ in range(1_000):
        for number in asked(plan, now_s):
            plan.answered(number, is_found=False)
            count += 1
    assert FRUITLESS_MAX <= count <= FRUITLESS_MAX + AT_ONCE
    assert "lacks the schemas that payloads of the route flood name" in some(plan.awaited(999))
    plan.want(5_000, "clean")
    assert asked(plan, now_s) == [5_000]
    plan.answered(5_000, is_found=True)
    now_s += 60
    for tenth in range(100):
        for number in asked(plan, now_s + tenth * 0.1):
            plan.answered(number, is_found=False)
            count += 1
    assert count <= 2 * FRUITLESS_MAX + 10 * FRUITLESS_PER_S + AT_ONCE


def test_found_schemas_cost_no_budget() -> None:
    plan = planned(*range(1, 1_000))
    found = 0
    while numbers := asked(plan):
        for number in numbers:
            plan.answered(number, is_found=True)
            found += 1
    assert found == 999


def test_a_line_is_bounded_and_takes_more_once_it_has_moved() -> None:
    plan = planned(*range(1, WANTED_MAX + 1))
    assert not plan.want(9_999, "a")
    assert plan.awaited(9_999) is None
    assert plan.want(9_999, "b")
    plan.answered(some(plan.next(0.0)), is_found=True)
    assert plan.want(10_000, "a")


def test_an_id_that_fails_is_asked_for_again_after_growing_pauses() -> None:
    plan, times = planned(1), list[float]()
    for tick in range(200):
        number = plan.next(tick / 10)
        if number is not None:
            times.append(tick / 10)
            plan.failed(number, "answered 500: x", is_there=True, now_s=tick / 10)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0], abs=0.11)
    said = "has not returned schema 1: it answered 500: x"
    assert said in some(plan.awaited(1))


def test_an_id_is_refused_after_the_grace_if_the_registry_answers_about_others() -> None:
    plan = planned(1)
    assert not refused(plan, 1, 0.0)
    assert not refused(plan, 1, GRACE_S - 1)
    assert refused(plan, 1, GRACE_S)
    assert plan.awaited(1) is None


def test_a_registry_that_answers_nothing_proves_nothing_about_an_id() -> None:
    plan = planned(1)
    for now_s in (0.0, 100.0, 1_000.0):
        assert plan.next(now_s) == 1
        assert not plan.failed(1, "does not answer", is_there=False, now_s=now_s)
    assert plan.awaited(1) == "the schema registry at http://r, which does not answer"
    assert not refused(plan, 1, 2_000.0), "the grace begins again"
    assert refused(plan, 1, 2_000.0 + GRACE_S)


def test_a_registry_that_answers_nothing_is_asked_for_one_id_at_a_time() -> None:
    plan = planned(1, 2, 3)
    assert asked(plan) == [1, 2, 3]
    for number in (1, 2, 3):
        plan.failed(number, "does not answer", is_there=False, now_s=0.0)
    assert asked(plan, 0.0) == []
    (first,) = asked(plan, 10.0)
    plan.answered(first, is_found=True)
    assert len(asked(plan, 10.0)) == 2, "it is there again"


def test_an_id_that_was_refused_before_is_refused_again_at_once() -> None:
    plan = planned(1)
    assert not refused(plan, 1, 0.0)
    assert refused(plan, 1, GRACE_S)
    plan.want(1, "a")
    assert refused(plan, 1, GRACE_S + REMEMBERED_S)
    plan.want(1, "a")
    assert not refused(plan, 1, GRACE_S + 2 * REMEMBERED_S + 1)


def test_refusals_cost_budget_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRUITLESS_MAX", 2)
    plan = LookupPlan("http://r")
    for number in (1, 2, 3):
        plan.want(number, "a")
    tried = 0
    while (due := plan.next(0.0)) is not None:
        plan.failed(due, "answered 403: no", is_there=True, now_s=0.0)
        tried += 1
    assert tried <= 2


class Held(FakeSchemas):
    """Answers when it is let."""

    def __init__(self, **schemas: RegisteredSchema) -> None:
        super().__init__(**schemas)
        self.may_answer = threading.Event()
        self.most = self._now = 0

    async def schema(self, number: int) -> RegisteredSchema | None:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.to_thread(self.may_answer.wait)
        self._now -= 1
        return await super().schema(number)


def test_nobody_waits_for_a_registry_that_does_not_answer() -> None:
    registry, results = Held(_1=STRING), list[str]()
    lookups = Lookups(registry.url, lambda: registry, results.append)
    for number in range(1, 11):
        assert lookups.want(number, "a")
    assert lookups.take() == {}
    assert lookups.awaited(1) is not None
    registry.may_answer.set()
    lookups.wait(10, LIMIT_S)
    eventually(lambda: all(lookups.awaited(number) is None for number in range(1, 11)))
    answers = lookups.take()
    assert {number: answers[number].result for number in (1, 2)} == {1: "found", 2: "unknown"}
    assert registry.most <= AT_ONCE
    assert results.count("unknown") == 9
    lookups.close()


def test_a_failure_is_the_ids_if_a_known_one_is_answered_meanwhile() -> None:
    registry = FakeSchemas(_1=STRING)
    now_s = 0.0
    lookups = Lookups(registry.url, lambda: registry, monotonic_s=lambda: now_s)
    lookups.want(1, "a")
    lookups.wait(1, LIMIT_S)
    registry.refused[2] = "answered 403: no"
    lookups.want(2, "a")
    lookups.wait(2, LIMIT_S)
    assert set(registry.probed) == {1}  # twice if the first request failed before the wait began
    now_s = GRACE_S
    eventually(lambda: lookups.awaited(2) is None)
    assert lookups.take()[2].result == "refused"
    lookups.close()


def test_a_registry_that_cannot_be_opened_is_one_that_is_away() -> None:
    registry, opened = FakeSchemas(_1=STRING), threading.Event()

    def open_it() -> FakeSchemas:
        if not opened.is_set():
            raise OSError(2, "no such file", "ca.pem")
        return registry

    now_s = 0.0
    lookups = Lookups(registry.url, open_it, monotonic_s=lambda: now_s)
    lookups.want(1, "a")
    lookups.wait(1, LIMIT_S)
    assert "no such file" in some(lookups.awaited(1))
    opened.set()
    now_s = 1.0
    eventually(lambda: lookups.awaited(1) is None)
    assert lookups.take()[1].result == "found"
    lookups.close()


class Broken(FakeSchemas):
    """Raises what no client of a registry should raise."""

    async def schema(self, number: int) -> RegisteredSchema | None:
        raise ZeroDivisionError(number)


def test_an_unforeseen_exception_of_the_client_is_a_failure_like_others() -> None:
    registry = Broken(_1=STRING)
    registry.away = "does not answer"
    lookups = Lookups(registry.url, lambda: registry)
    lookups.want(1, "a")
    lookups.wait(1, LIMIT_S)
    assert "ZeroDivisionError" in some(lookups.awaited(1))
    with pytest.raises(RegistryUnavailableError):
        asyncio.run(registry.probe(1))
    lookups.close()
