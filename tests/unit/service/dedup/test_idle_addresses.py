"""Idle addresses: which of them expire, when, and what is left of them."""

from dataclasses import replace

import pytest

from ringfence_client.headers import DUPLICATE_ID, GROUP_POSITION, GROUP_SIZE, NUMBER, PUBLISHER
from ringfence_client.headers import GROUP as GROUP_NAME
from ringfence_service.config.addresses import AUDIT, BRIDGE
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.decider import expire_addresses, import_ids
from ringfence_service.dedup.plan import Plan
from ringfence_service.dedup.record import KnownId
from ringfence_service.processor.apply import apply
from tests.support.deciding import CHANGELOG, NOW_MS, World, named, reasons, record
from tests.unit.service.dedup.test_decider import ROUTE

IDLE_MS = 1_000
START_MS = NOW_MS - 1_000_000


class Settled(World):
    """A partition whose settings stay the same object until they change, as in a loop."""

    _given: object = None

    def rules(self) -> DecisionContext:
        rules = super().rules()
        if self._given is not self.addresses:
            self._given, self._book = self.addresses, rules.book
        return replace(rules, book=self._book)


def world(**settings: object) -> World:
    own = {"#": {"address_idle_ms": IDLE_MS, **settings}}
    return Settled(replace(ROUTE, address="{key}"), addresses=own)


def send(world: World, offset: int, address: str, identifier: bytes, after_ms: int) -> list[str]:
    """Commit one record; return the reason of its dead letter, if it is one."""
    plan = world.commit(
        record(
            offset,
            (DUPLICATE_ID, identifier),
            key=address.encode(),
            timestamp_ms=START_MS + after_ms,
        )
    )
    return [reason or "in" for reason in reasons(plan.outputs)]


def sweep(world: World, edits_max: int = 10_000) -> Plan:
    """What a turn of the loop does."""
    world.partition.idle.begin(world.partition.addresses, world.rules().book)
    plan = Plan()
    expire_addresses(world.partition, world.rules(), plan, edits_max)
    log = {CHANGELOG: world.partition.changelog_next + len(plan.edits.get(CHANGELOG, []))}
    apply(plan, log, {world.partition.source: world.partition}, world.cache, NOW_MS)
    return plan


@pytest.mark.parametrize("strategy", ["ring", "window"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_an_address_expires_once_its_newest_id_is_older_than_the_idle_time(
    strategy: str, *, is_kept: bool
) -> None:
    here = world(strategy=strategy, persist_id_cache=is_kept)
    assert send(here, 0, "x", b"a", 0) == ["in"]
    assert send(here, 1, "y", b"a", IDLE_MS) == ["in"]
    sweep(here)
    assert here.partition.addresses == {"x", "y"}
    assert send(here, 2, "y", b"b", IDLE_MS + 1) == ["in"]
    sweep(here)
    assert here.partition.addresses == {"y"}
    assert not [key for key, _ in here.store.scan(b"") if b"x" in key]
    assert not [key for key, _ in here.partition.volatile.scan(b"") if b"x" in key]
    assert here.cache.look(here.partition.source, "x") is None
    assert send(here, 3, "x", b"a", IDLE_MS + 2) == ["in"]
    assert send(here, 4, "x", b"a", IDLE_MS + 2) == ["duplicate"]


def test_without_the_setting_no_address_expires() -> None:
    here = world(address_idle_ms=0)
    send(here, 0, "x", b"a", 0)
    send(here, 1, "y", b"a", 500_000)
    assert not sweep(here).expired
    assert here.partition.addresses == {"x", "y"}
    assert not here.partition.idle.may_have(START_MS * 2)


def test_a_duplicate_does_not_make_an_address_younger_unless_its_window_is_refreshed() -> None:
    for settings, is_held in (
        ({}, False),
        ({"strategy": "window", "refresh_on_hit": True}, True),
        ({"strategy": "window", "refresh_on_hit": False}, False),
    ):
        here = world(**settings)
        send(here, 0, "x", b"a", 0)
        assert send(here, 1, "x", b"a", IDLE_MS) == ["duplicate"]
        send(here, 2, "y", b"a", IDLE_MS + 1)
        sweep(here)
        assert ("x" in here.partition.addresses) == is_held


def test_what_belongs_to_an_address_goes_with_it_and_keeps_it_alive() -> None:
    here = world(dead_letter_audit=True)
    stamp = b"cluster/orders/0/7"
    send(here, 0, "x", b"a", 0)
    send(here, 1, "x", stamp, 500)
    send(here, 2, "x", stamp, 500)
    send(here, 3, "x", b"a", 501)
    caches = {"x", BRIDGE + "x", AUDIT + "x", AUDIT + BRIDGE + "x"}
    assert here.partition.addresses == caches
    send(here, 4, "y", b"a", 1500)
    sweep(here)
    assert here.partition.addresses == {*caches, "y"}
    send(here, 5, "y", b"b", 1501)
    assert sweep(here).expired == [(here.partition.source, tuple(sorted(caches, key=_order)))]
    assert here.partition.addresses == {"y"}


def _order(cache: str) -> tuple[bool, int]:
    return cache.startswith(AUDIT), len(cache)


@pytest.mark.parametrize("strategy", ["audit", "sequence", "ordered"])
def test_numbers_of_publishers_are_never_forgotten(strategy: str) -> None:
    here = world(strategy=strategy)
    here.commit(
        record(0, (PUBLISHER, b"p"), (NUMBER, b"1"), ("_SEQ_ID", b"1"), ("_PREV", b"0"), key=b"x")
    )
    held = set(here.partition.addresses)
    assert held
    here.partition.time_ms += 10 * IDLE_MS
    sweep(here)
    assert here.partition.addresses == held


def test_an_address_on_which_a_group_waits_does_not_expire() -> None:
    here = world(group_timeout_ms=10_000_000)
    half = (GROUP_NAME, b"g"), (GROUP_SIZE, b"2"), (GROUP_POSITION, b"1")
    send(here, 0, "x", b"a", 0)
    here.commit(record(1, *half, key=b"x", timestamp_ms=START_MS))
    send(here, 2, "y", b"a", 10 * IDLE_MS)
    sweep(here)
    assert here.partition.addresses == {"x", "y"}
    rest = (GROUP_NAME, b"g"), (GROUP_SIZE, b"2"), (GROUP_POSITION, b"2"), (DUPLICATE_ID, b"a")
    plan = here.commit(record(3, *rest, key=b"x", timestamp_ms=START_MS + 10 * IDLE_MS))
    assert reasons(plan.outputs)[-1] == "duplicate-in-transaction"
    send(here, 4, "y", b"b", 12 * IDLE_MS)
    sweep(here)
    assert here.partition.addresses == {"y"}


@pytest.mark.parametrize("besides", [(), (("_EXPIRES_AT", b"9" * 15),)], ids=["plain", "full path"])
def test_a_new_address_gets_the_room_of_an_idle_one_at_once(
    besides: tuple[tuple[str, bytes], ...],
) -> None:
    here = world(addresses_max=1)
    send(here, 0, "x", b"a", 0)
    assert send(here, 1, "y", b"a", IDLE_MS) == ["too-many-addresses"]
    plan = here.commit(
        record(2, (DUPLICATE_ID, b"a"), *besides, key=b"y", timestamp_ms=START_MS + IDLE_MS + 1),
        record(3, (DUPLICATE_ID, b"a"), *besides, key=b"y", timestamp_ms=START_MS + IDLE_MS + 1),
    )
    assert reasons(plan.outputs) == [None, "duplicate"]
    assert here.partition.addresses == {"y"}


def test_an_address_that_expires_and_comes_back_in_one_batch_is_new() -> None:
    here, late_ms = world(addresses_max=2), START_MS + IDLE_MS + 1
    send(here, 0, "x", b"a", 0)
    send(here, 1, "z", b"a", IDLE_MS)
    batch = [
        (b"y", b"a", late_ms),
        (b"x", b"a", late_ms + IDLE_MS),
        (b"x", b"a", late_ms + IDLE_MS),
    ]
    plan = here.commit(
        *(
            record(offset, (DUPLICATE_ID, identifier), key=key, timestamp_ms=time_ms)
            for offset, (key, identifier, time_ms) in enumerate(batch, 2)
        )
    )
    # For `y` the partition forgets `x`; for `x`, which is new, it forgets `z`.
    assert reasons(plan.outputs) == [None, None, "duplicate"]
    assert here.partition.addresses == {"x", "y"}
    assert send(here, 5, "x", b"a", 2 * IDLE_MS + 2) == ["duplicate"]
    assert send(here, 6, "x", b"b", 2 * IDLE_MS + 2) == ["in"]


def test_an_address_that_the_batch_uses_keeps_its_room() -> None:
    here = world(addresses_max=1)
    send(here, 0, "x", b"a", 0)
    plan = here.commit(
        named(1, b"a", key=b"x"),
        named(2, b"a", key=b"y"),
    )
    assert reasons(plan.outputs) == ["duplicate", "too-many-addresses"]
    assert send(here, 3, "y", b"a", NOW_MS - START_MS - 1_000) == ["in"]


def test_a_plan_that_is_dropped_lets_no_address_expire() -> None:
    here = world(addresses_max=1)
    send(here, 0, "x", b"a", 0)
    late = record(1, (DUPLICATE_ID, b"a"), key=b"y", timestamp_ms=START_MS + 2 * IDLE_MS)
    for _ in range(3):
        assert reasons(here.decide(late).outputs) == [None]
    assert here.partition.addresses == {"x"}
    assert send(here, 1, "x", b"a", IDLE_MS) == ["duplicate"]
    assert reasons(here.commit(late).outputs) == [None]
    assert here.partition.addresses == {"y"}


def test_an_import_of_old_ids_does_not_make_an_address_idle() -> None:
    here = world()
    send(here, 0, "x", b"a", IDLE_MS)
    old = [KnownId(b"old", time_ms=START_MS - 100 * IDLE_MS, topic="orders", partition=1)]
    plan = Plan()
    list(import_ids(here.partition, "x", old, here.rules(), plan, NOW_MS))
    log = {CHANGELOG: here.partition.changelog_next + len(plan.edits[CHANGELOG])}
    apply(plan, log, {here.partition.source: here.partition}, here.cache, NOW_MS)
    send(here, 1, "y", b"a", IDLE_MS + 2)
    sweep(here)
    assert here.partition.addresses == {"x", "y"}
    send(here, 2, "y", b"b", 2 * IDLE_MS + 1)
    sweep(here)
    assert here.partition.addresses == {"y"}


def test_one_turn_removes_no_more_than_it_may_write_and_the_next_goes_on() -> None:
    here = world()
    for offset in range(10):
        send(here, offset, f"x{offset}", b"a", 0)
    send(here, 10, "y", b"a", 2 * IDLE_MS)
    assert len(sweep(here, edits_max=3).expired) == 3
    assert len(sweep(here, edits_max=4).expired) == 4
    assert len(sweep(here).expired) == 3
    assert here.partition.addresses == {"y"}
    assert not sweep(here).expired


def test_an_address_is_measured_once_in_its_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    here = world()
    for offset in range(4):
        send(here, offset, f"x{offset}", b"a", 0)
    sweep(here)
    gets = list[bytes]()
    monkeypatch.setattr(here.store, "get", gets.append)
    for after_ms in range(1, IDLE_MS, 100):
        here.partition.time_ms = START_MS + after_ms
        sweep(here)
    assert not gets


def test_new_settings_apply_to_the_addresses_that_are_there() -> None:
    here = world(address_idle_ms=0)
    send(here, 0, "x", b"a", 0)
    send(here, 1, "y", b"a", 2 * IDLE_MS)
    sweep(here)
    here.addresses = {"#": {"address_idle_ms": IDLE_MS}}
    sweep(here)
    assert here.partition.addresses == {"y"}
