"""Cases 1 to 35: the duplicate cache of HornetQ and Artemis, and its address settings."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT, MARK, DeadLetter
from ringfence_service.config.load import ConfigErrors, load
from tests.cases.case import MANNERS, Case, Manner, every_case, every_manner
from tests.cases.scene import BY_ADDRESS, Scene
from tests.cases.trace import ADDRESS, fates, headers_of
from tests.fakes.producer import FakeProducer
from tests.support.living import LOG, ROUTE, turns


@pytest.fixture(params=["whole", "compact"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a ring is held in memory, which the size alone decides otherwise."""
    if request.param == "compact":
        monkeypatch.setattr("ringfence_state.cache.WHOLE_IDS_MAX", 0)


in_both_forms = pytest.mark.usefixtures("form")


def size(ids: int) -> dict[str, object]:
    return {"id_cache_size": ids}


@in_both_forms
@every_manner
@every_case(
    Case(
        1,
        "the newest id takes the place of the oldest",
        "a b c d a b a",
        "in in in in in in dup",
        size(3),
    ),
    Case(2, "a hit refreshes nothing", "a b c a d a", "in in in dup in in", size(3)),
    Case(3, "of equal ids the first is accepted", "a a a", "in dup dup"),
    Case(
        4,
        "a duplicate does not disturb the ids around it",
        "- - a a b a b",
        "in in in dup in dup dup",
        size(3),
    ),
    Case(8, "size 0 detects nothing", "a a a a a", "in*5", size(0)),
    Case(8, "off detects nothing", "a a a a a", "in*5", {"strategy": "off"}),
    Case(
        16,
        "a full ring is known after a restart",
        "a b c d e | a b c d e f a",
        "in*5 dup*5 in in",
        size(5),
    ),
    Case(
        31,
        "of five copies one is accepted",
        "123 123 456 123 456 456 123 456 123 456",
        "in dup in dup*7",
    ),
)
def test_the_ring(case: Case, manner: Manner) -> None:
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


GROUPS: Final = {"id_cache_size": 3, "group_timeout_ms": 5_000}


@in_both_forms
@every_manner
@every_case(
    Case(10, "a group that was accepted is rejected whole", "t[a,b] u[a,b]", "in in tx tx"),
    Case(10, "under its own name too", "t[a,b] t[a,b] t[a,b]", "in in tx*4"),
    Case(
        11,
        "a known id rejects all of its group and the rest may come again",
        "a t[a,-,x,-] u[-,x,-]",
        "in tx*4 in*3",
    ),
    Case(
        11,
        "wherever in its group it stands",
        "a t[x,y,a] x y",
        "in tx*3 in in",
    ),
    Case(
        12,
        "one id twice in a group rejects it where Artemis delivers both",
        "t[a,a] a",
        "tx tx in",
    ),
    Case(
        12,
        "of two open groups with one id the first to be whole is accepted",
        "t[1/2]a u[1/2]a t[2/2]b u[2/2]c c",
        "in tx in tx in",
    ),
    Case(15, "a group of one is judged as any other", "t[a] u[a,b] v[a] b", "in tx tx tx in"),
    Case(
        22,
        "of a group larger than the ring the last ids are held",
        "t[1..5] 3 4 5 2",
        "in*5 dup*3 in",
    ),
    Case(
        22,
        "and each of its ids is judged by what was held before it",
        "1 2 3 t[4,5,6,1]",
        "in*3 tx*4",
    ),
)
def test_groups(case: Case, manner: Manner) -> None:
    assert Scene(GROUPS, manner).play(case.trace) == fates(case.fates)


def test_case_04_a_message_without_an_id_leaves_the_ring_empty() -> None:
    scene = Scene(size(3))
    assert scene.play("- -") == fates("in in")
    assert scene.address().partitions == ()
    assert scene.cluster.records(*LOG) == []


@pytest.mark.parametrize("manner", [MANNERS["in one transaction"], MANNERS["in one each"]])
def test_case_05_ids_of_every_kind_of_client_are_bytes(manner: Manner) -> None:
    """Artemis makes UTF-16 of a text id, so that the text and its UTF-8 bytes are two ids there."""
    scene = Scene(manner=manner)
    ids = ["é".encode(), "é".encode("utf-16-le"), "é".encode("latin-1"), b"", b"\0", b"e\xcc\x81"]
    for name in ("_AMQ_DUPL_ID", "_HQ_DUPL_ID", DUPLICATE_ID):
        for identifier in ids:
            scene.put([(name, identifier)])
    scene.settle()
    assert scene.told() == fates("in*6 dup*12")


@in_both_forms
@every_manner
def test_case_06_the_rings_of_three_addresses_are_independent(manner: Manner) -> None:
    scene = Scene(size(20), manner, route=BY_ADDRESS)
    addresses = ("X", "Y", "Z.z")
    for ids, expected in [
        ("1..20", "in*20"),
        ("1..20", "dup*20"),
        ("21..40", "in*20"),
        ("1..20", "in*20"),
    ]:
        trace = " ".join(f"{address}/{ids}" for address in addresses)
        assert scene.play(trace) == fates(expected) * 3


@in_both_forms
@every_manner
def test_case_07_an_address_may_have_a_size_of_its_own(manner: Manner) -> None:
    scene = Scene(manner=manner, route=BY_ADDRESS, addresses={"#": size(2), "X": size(1)})
    assert scene.play("Y/1 Y/2 Y/1 X/1 X/2 X/1") == fates("in in dup in in in")


@pytest.mark.parametrize("keeps_disk", [True, False])
def test_case_17_an_address_that_is_not_kept_forgets_at_a_restart(*, keeps_disk: bool) -> None:
    scene = Scene({"persist_id_cache": False}, Manner(keeps_disk=keeps_disk))
    assert scene.play("a b a | a b a") == fates("in in dup in in dup")
    assert scene.play("t[c,d] u[c,d] | v[c,d]") == fates("in in tx tx in in")


@pytest.mark.parametrize("keeps_disk", [True, False])
def test_case_17_what_waits_at_such_an_address_is_kept_all_the_same(*, keeps_disk: bool) -> None:
    scene = Scene({"persist_id_cache": False}, Manner(keeps_disk=keeps_disk))
    assert scene.play("a t[1/2]b | t[2/2]a") == fates("in in in")


@every_manner
@pytest.mark.parametrize("trace", ["t[1/2]a", "t[2/2]a | |"])
def test_case_09_and_14_what_a_sender_gave_up_is_remembered_by_nobody(
    trace: str, manner: Manner
) -> None:
    """In Artemis it rolls back, or its session ends, or a prepared transaction is given up."""
    scene = Scene(GROUPS, manner)
    scene.play(trace)
    assert scene.play("a a") == fates("in dup")
    scene.wait(6)
    assert scene.told() == fates("group-incomplete in dup")


@every_manner
def test_case_09_what_a_sender_rolls_back_in_kafka_is_never_read(manner: Manner) -> None:
    scene = Scene(manner=manner)
    sender = FakeProducer(scene.cluster, "sender")
    sender.init_transactions(10)
    for end in (sender.abort_transaction, sender.commit_transaction):
        sender.begin_transaction()
        sender.produce("orders", b"0", None, 0, headers=headers_of("a"))
        sender.flush(10)
        end(10)
    assert scene.play("a") == ["in+dup"], "the one that was committed, and this one"


@every_manner
def test_case_14_and_16_what_waits_for_its_group_outlives_process_and_machine(
    manner: Manner,
) -> None:
    scene = Scene(GROUPS, manner)
    assert scene.play("a t[2/3]c") == fates("in none")
    scene.lose_machine()
    assert scene.play("t[1/3]b") == fates("none")
    scene.lose_machine()
    scene.play("t[3/3]d")
    assert scene.play("b c d") == fates("dup*3")
    values = [record.value for record in scene.cluster.records("orders.unique")]
    assert values == [b"0", b"2", b"1", b"3"]


@in_both_forms
@pytest.mark.parametrize("keeps_disk", [True, False])
@pytest.mark.parametrize("records_max", [1, 10_000])
def test_case_18_a_smaller_ring_keeps_the_newest_ids(*, records_max: int, keeps_disk: bool) -> None:
    scene = Scene(size(150), Manner(records_max, keeps_disk=keeps_disk))
    scene.play("1..200")
    scene.configure({"#": size(100)})
    assert scene.held() == 100
    assert scene.play("151..200 101..150") == fates("dup*100")
    assert scene.held() == 100
    assert scene.play("100 99") == fates("in in")
    if records_max == 1:
        # A run for each id; what a transaction outlives is deleted with the next.
        assert 100 <= scene.stored() <= 101


@in_both_forms
@pytest.mark.parametrize("keeps_disk", [True, False])
def test_case_18_a_larger_ring_fills_up_from_what_was_held(*, keeps_disk: bool) -> None:
    scene = Scene(size(2), Manner(keeps_disk=keeps_disk))
    scene.play("a b c")
    scene.configure({"#": size(4)})
    assert scene.play("b c a d b") == fates("dup dup in in dup")
    assert scene.play("e b") == fates("in in")


@in_both_forms
@pytest.mark.parametrize("keeps_disk", [True, False])
def test_case_19_what_is_stored_never_exceeds_the_size(*, keeps_disk: bool) -> None:
    """Ours deletes with the next transaction what one has outlived, so one more may stand there."""
    scene = Scene(size(10), Manner(records_max=1, keeps_disk=keeps_disk))
    for trace in ("1..100", "101..200"):
        scene.play(trace)
        scene.kill()
        assert scene.held() == 10
        assert 10 <= scene.stored() <= 11
    assert scene.play("191..200 190") == fates("dup*10 in")


@in_both_forms
def test_case_19_a_resize_survives_compaction_and_touches_no_other_address() -> None:
    both = {"X": size(10), "Y": size(10)}
    manner = Manner(records_max=1, keeps_disk=False)
    scene = Scene(manner=manner, route=BY_ADDRESS, addresses=both)
    scene.play("X/1..60 Y/1..60")
    scene.configure(both | {"X": size(30)})
    assert scene.play("X/61..120 Y/61") == fates("in*61")
    scene.cluster.compact(0)
    scene.kill()
    assert (scene.held("X"), scene.held("Y")) == (30, 10)
    assert scene.play("X/91..120 Y/52..61") == fates("dup*40")
    assert scene.play("X/90 Y/51") == fates("in in")


@pytest.mark.parametrize(
    ("addresses_max", "audited", "trace", "expected"),
    [
        (2, False, "X/a X/b Y/a X/c Y/b Z/a", "in*5 too-many-addresses"),
        (2, False, "X/a | X/b Y/a", "in*3"),
        (2, True, "X/a X/a X/a Y/a", "in dup none too-many-addresses"),
        (3, True, "X/a X/a Y/a Y/a Y/a", "in dup in dup none"),
        (2, False, "X/a X/~1 X/~1 Y/a", "in in dup too-many-addresses"),
    ],
)
def test_case_27_an_address_counts_once_and_so_does_each_of_its_caches(
    addresses_max: int, trace: str, expected: str, *, audited: bool
) -> None:
    settings = {"addresses_max": addresses_max, "dead_letter_audit": audited}
    scene = Scene(settings, route=BY_ADDRESS)
    assert scene.play(trace) == fates(expected)


def test_case_27_a_message_for_an_address_too_many_may_come_again() -> None:
    scene = Scene({"addresses_max": 1}, route=BY_ADDRESS)
    assert scene.play("X/a Y/a Y/a") == fates("in too-many-addresses too-many-addresses")
    scene.configure({"#": {"addresses_max": 2}})
    assert scene.play("Y/a Y/a X/a") == fates("in dup dup")


SHARED: Final = replace(BY_ADDRESS, dead_letter="DLQ")


@every_manner
def test_case_28_a_shared_dead_letter_topic_takes_equal_ids_of_two_addresses(
    manner: Manner,
) -> None:
    scene = Scene(manner=manner, route=SHARED)
    scene.cluster.create_topic("DLQ")
    scene.play("X/1..50 Y/1..50")
    assert scene.play("X/1..50 Y/1..50") == fates("dup*100")
    assert [letter[DeadLetter.ADDRESS] for letter in scene.letters("DLQ")] == ["X"] * 50 + [
        "Y"
    ] * 50


def test_case_13_a_message_for_a_topic_that_is_not_there_yet_is_accepted_when_it_is() -> None:
    """Artemis takes the id of what it could route nowhere, and drops what is sent again."""
    scene = Scene(addresses={})
    loop = scene.life
    del scene.cluster.logs["orders.unique"]
    scene.put(headers_of("a"))
    turns(loop, 5)
    assert scene.told() == ["none"]
    scene.cluster.create_topic("orders.unique")
    assert scene.play("a") == ["dup"]
    assert scene.told() == fates("in dup")


@every_manner
@every_case(
    Case(13, "of size 0 nothing that a bridge stamped is lost", "~1 ~1 a a", "in*4", size(0)),
    Case(25, "a stamp and an id are in rings apart", "a ~1 a ~1", "in in dup dup", size(1)),
    Case(25, "and neither evicts the other", "~1 1..5 ~1 5 ~2 5", "in*6 dup dup in dup", size(2)),
)
def test_bridges(case: Case, manner: Manner) -> None:
    """A stamp is recognized by its shape, so an id of equal bytes is never taken for one."""
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


@in_both_forms
@every_manner
def test_case_13_and_25_what_a_bridge_stamped_has_settings_of_its_own(manner: Manner) -> None:
    patterns = {"#": size(1), "BRIDGE.#": size(0), "BRIDGE.Y": size(2)}
    scene = Scene(manner=manner, route=BY_ADDRESS, addresses=patterns)
    for address in "XY":
        scene.put([(ADDRESS, address.encode()), *headers_of("~1")])
        scene.put([(ADDRESS, address.encode()), *headers_of("~1")])
    scene.settle()
    assert scene.told() == fates("in in in dup")
    assert scene.play("X/a X/a Y/a Y/a") == fates("in dup in dup")
    assert [scene.held(name) for name in ("X", "BRIDGE.X", "Y", "BRIDGE.Y")] == [1, 0, 1, 1]


@every_manner
def test_case_26_of_what_is_forwarded_again_the_rest_arrives(manner: Manner) -> None:
    known, forwarded = 10, 100
    scene = Scene(manner=manner, route=BY_ADDRESS)
    assert scene.play(f"X/~1..{known}") == fates(f"in*{known}")
    both = scene.play(f"X/~1..{forwarded} Y/~1..{forwarded}")
    assert both[:forwarded] == fates(f"dup*{known} in*{forwarded - known}")
    assert both[forwarded:] == fates(f"in*{forwarded}"), "at an address that has none of them"


def test_case_28_what_expired_is_never_a_duplicate_and_not_remembered() -> None:
    scene = Scene(route=SHARED)
    scene.cluster.create_topic("DLQ")
    for _ in range(2):
        for address in (b"X", b"Y"):
            scene.put([(ADDRESS, address), (DUPLICATE_ID, b"a"), (EXPIRES_AT, b"1")])
    assert scene.play("X/a Y/a X/a") == fates("in in dup")
    assert scene.told()[:4] == fates("expired*4")


def test_case_30_a_resend_is_known_by_what_the_first_stage_stamped() -> None:
    """Artemis remembers the ids that it stamps; ours leaves that to who reads them after it."""
    first = Scene(route=replace(ROUTE, missing_id="stamp"))
    assert first.play("- " * 100) == fates("in*100")
    assert first.cluster.records(*LOG) == []
    stamped = first.cluster.records("orders.unique")
    stamps = {dict(record.headers or [])[DUPLICATE_ID] for record in stamped}
    assert len(stamps) == 100
    second = Scene(size(100))
    for record in [*stamped, *stamped]:
        second.put(list(record.headers or []))
    second.settle()
    assert second.told() == fates("in*100 dup*100")


@every_manner
def test_case_31_a_group_with_an_id_that_is_known_is_an_error_for_amqp_clients_too(
    manner: Manner,
) -> None:
    scene = Scene(manner=manner)
    for word in ("123", "t[1/2]123", "t[2/2]456", "456"):
        names = {DUPLICATE_ID: "_AMQ_DUPL_ID"}
        scene.put([(names.get(name, name), value) for name, value in headers_of(word)])
    scene.settle()
    assert scene.told() == fates("in tx tx in")


# Of a b a: size 1 has forgotten a, size 2 has not. Of a a: size 0 knows none.
OF_SIZE: Final = {0: "in in in in", 1: "in dup in in", 2: "in dup in dup"}


def assert_size(scene: Scene, address: str, ids: int) -> None:
    """The address behaves as a ring of 0, 1 or 2 ids, and says so."""
    trace = " ".join(f"{address}/{identifier}" for identifier in "aaba")
    assert scene.play(trace) == fates(OF_SIZE[ids])
    assert scene.address(address).settings["id_cache_size"].value == ids


@pytest.mark.parametrize(
    ("address", "ids"), [("a.b", 1), ("a.b.d", 2), ("a.babc", 0), ("a.b.dabc", 1), ("a.b.d.e", 2)]
)
def test_case_32_the_longer_of_two_patterns_with_hash_goes_before(address: str, ids: int) -> None:
    patterns = {"a.b.#": size(1), "a.b.d.#": size(2), "#": size(0)}
    assert_size(Scene(route=BY_ADDRESS, addresses=patterns), address, ids)


@pytest.mark.parametrize(
    ("address", "other", "better"),
    [
        ("a.b.x.d", "a.b.#", "a.*.*.d"),
        ("a.b.c.d.e.f", "a.*.*.*.*.*", "a.b.c.d.e.*"),
        ("foo.0.x", "foo.0.#", "foo.0.x"),
        ("foo.0", "foo.0.#", "foo.*"),
        ("a", "a.#", "*"),
    ],
)
def test_case_33_a_pattern_of_stars_goes_before_one_with_hash(
    address: str, other: str, better: str
) -> None:
    for patterns in ({other: size(2), better: size(1)}, {better: size(1), other: size(2)}):
        scene = Scene(route=BY_ADDRESS, addresses=patterns)
        assert_size(scene, address, 1)
        assert scene.address(address).settings["id_cache_size"].pattern == better


def test_case_34_what_an_exact_pattern_leaves_out_the_broader_one_supplies() -> None:
    patterns: dict[str, dict[str, object]] = {
        "#": {"process_expired": False},
        "a.#": size(1),
        "a.b": {"on_duplicate": "mark"},
    }
    scene = Scene(route=BY_ADDRESS, addresses=patterns)
    assert scene.play("a.b/a a.b/a a.b/b a.b/a a.c/a a.c/a b/1..3 b/1") == fates(
        "in mark in in in dup in*3 dup"
    )
    scene.put([(ADDRESS, b"a.b"), (DUPLICATE_ID, b"late"), (EXPIRES_AT, b"1")])
    scene.settle()
    assert scene.told()[-1] == "in"
    origins = {key: told.pattern for key, told in scene.address("a.b").settings.items()}
    assert origins["id_cache_size"] == "a.#"
    assert origins["on_duplicate"] == "a.b"
    assert origins["process_expired"] == "#"
    assert origins["strategy"] == "default"
    marked = [r for r in scene.cluster.records("orders.unique") if MARK in dict(r.headers or [])]
    assert [dict(record.headers or [])[MARK] for record in marked] == [b"orders-0@0"]


@pytest.mark.parametrize("pattern", ["h.#.z", "#.z", "", "a.b#"])
def test_case_35_a_pattern_with_hash_anywhere_but_last_is_refused(
    pattern: str, tmp_path: Path
) -> None:
    file = tmp_path / "ringfence.toml"
    route = '[[routes]]\ninputs = ["orders"]\nscope = "partition"'
    file.write_text(
        f'[kafka]\n"bootstrap.servers" = "a:1"\n{route}\n[addresses."{pattern}"]\n', "utf-8"
    )
    with pytest.raises(ConfigErrors, match="addresses"):
        load(file, {})
