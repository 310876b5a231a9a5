"""Cases 36 to 52: the message audit of ActiveMQ 5, and what its dead-letter strategies do.

Numbers begin at 1 here, since 0 is none; so a case that counts from 0 stands one higher.
"""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import DUPLICATE_ID, EXPIRES_AT
from tests.cases.case import Case, Manner, Settings, every_case, every_manner
from tests.cases.chance import manners
from tests.cases.scene import BY_ADDRESS, Scene
from tests.cases.trace import ADDRESS, fates
from tests.support.examples import examples
from tests.support.living import ROUTE, turns


def audit(depth: int = 2048, **settings: object) -> Settings:
    return {"strategy": "audit", "audit_depth": depth, **settings}


def as_activemq(depth: int = 2048, **settings: object) -> Settings:
    """A number below the window is new, as it is there."""
    return audit(depth, below_window="accept", **settings)


# In these an origin that answers otherwise keeps bins of 64, forgets below them, or wipes.
@every_manner
@every_case(
    Case(
        36,
        "each number is new once and the last of them known",
        "P#1..70 P#7..70",
        "in*70 dup*64",
        audit(64),
    ),
    Case(
        37,
        "of a depth of 64 exactly 64 are held backwards",
        "P#1..130 P#130..67 P#66 P#66",
        "in*130 dup*64 in in",
        as_activemq(64),
    ),
    Case(
        37,
        "what lies below is a duplicate unless it is wanted otherwise",
        "P#1..130 P#130..1",
        "in*130 dup*130",
        audit(64),
    ),
    Case(
        37,
        "a depth of 100 holds 100 where the bins hold 65",
        "P#1..129 P#129..30 P#29",
        "in*129 dup*100 in",
        as_activemq(100),
    ),
    Case(
        37,
        "a depth of 50 holds 50 where the bins hold 1",
        "P#1..65 P#65..16 P#15",
        "in*65 dup*50 in",
        as_activemq(50),
    ),
    Case(
        38,
        "the window slides by one and not by a bin of 64",
        "P#1 P#2048 P#1 P#2049 P#1 P#1",
        "in in dup in in in",
        as_activemq(),
    ),
    Case(
        38,
        "what slid out of the window is a duplicate all the same",
        "P#1 P#2112 P#1 P#2113 P#1 P#1",
        "in in dup in dup dup",
        audit(),
    ),
    Case(
        39,
        "a number below the first is new once where the bins forget it every time",
        "P#100 P#63 P#63 P#64 P#64",
        "in in dup in dup",
        audit(),
    ),
    Case(
        40,
        "a gap wider than the window does no harm",
        "P#64 P#768 P#576 P#576",
        "in in in in",
        as_activemq(128),
    ),
    Case(
        40,
        "what lies below a gap counts as a duplicate",
        "P#64 P#768 P#641 P#640",
        "in in in dup",
        audit(128),
    ),
    Case(
        41,
        "a large number may be the first",
        "P#4294967394 P#4294967394 P#4294967395",
        "in dup in",
        audit(),
    ),
    Case(
        41,
        "a large jump is taken where it is allowed",
        "P#1 P#4294967394 P#4294967394",
        "in in dup",
        audit(audit_jump_max=2**32 + 97),
    ),
    Case(
        41,
        "a jump too far is refused and nothing is forgotten for it",
        "P#1 P#4294967394 P#4294967394 P#1 P#2",
        "in invalid-claim invalid-claim dup in",
        audit(),
    ),
    Case(
        44,
        "the producer that was idle longest is forgotten",
        "a#1 b#1 a#1 c#1 a#1 b#1",
        "in in dup in dup in",
        audit(audit_producers=2),
    ),
    Case(
        52,
        "where duplicates are dropped they stand nowhere",
        "a a b a b c",
        "in none in none none in",
        {"on_duplicate": "drop"},
    ),
)
def test_the_audit(case: Case, manner: Manner) -> None:
    assert Scene(case.settings, manner).play(case.trace) == fates(case.fates)


@pytest.mark.parametrize("keeps_disk", [True, False])
def test_case_45_a_restart_every_hundred_numbers_changes_no_verdict(*, keeps_disk: bool) -> None:
    scene = Scene(audit(), Manner(keeps_disk=keeps_disk))
    lives = [f"P#{first}..{first + 99} P#{first + 50}" for first in range(1, 1000, 100)]
    assert scene.play(" | ".join(lives)) == fates("in*100 dup") * 10
    assert scene.play("P#1..1000 P#1001") == fates("dup*1000 in")


def test_case_45_a_depth_of_32767_holds_as_many() -> None:
    scene = Scene(as_activemq(32_767))
    assert scene.play("P#1..500 P#32268..32767") == fates("in*1000")
    assert scene.play("P#1..500 P#32268..32767") == fates("dup*1000")
    assert scene.play("P#32768 P#2 P#1") == fates("in dup in")


OTHERS = " ".join(f"P{number}#1" for number in range(50))


@every_manner
def test_case_46_a_resend_after_many_producers_is_a_duplicate_where_they_fit(
    manner: Manner,
) -> None:
    """ActiveMQ's audit forgets the sender and its store finds the copy; ours has no store behind.

    So the number of producers is the bound: 1024 by default, and `sequence` refuses the next one
    rather than forget one.
    """
    trace = f"P#1 {OTHERS} P#1 P#1"
    assert Scene(audit(audit_producers=51), manner).play(trace) == fates("in*51 dup dup")
    assert Scene(audit(audit_producers=50), manner).play(trace) == fates("in*52 dup")
    refusing = {"strategy": "sequence", "publishers_max": 50}
    assert Scene(refusing, manner).play(trace) == fates("in*50 invalid-claim dup dup")


def test_case_48_a_dead_letter_is_not_read_again_whatever_an_expression_says() -> None:
    scene = Scene(route=replace(ROUTE, inputs=("^orders.*",)))
    scene.put([(DUPLICATE_ID, b"a"), (EXPIRES_AT, b"1")])
    scene.settle()
    turns(scene.life, 50)
    assert scene.told() == fates("expired")
    assert [source.topic for source in scene.life.assignment.running] == ["orders"]


AUDITED: Final = {"dead_letter_audit": True}


@every_manner
@every_case(
    Case(
        49,
        "of one message at two addresses each comes to the dead letters once",
        "B/a C/a B/a C/a B/a C/a",
        "in in dup dup none none",
        AUDITED,
    ),
    Case(49, "each copy does where nobody asks for less", "B/a C/a B/a B/a", "in in dup dup"),
    Case(
        50,
        "an id that was forgotten is dead-lettered a second time",
        "B/a B/a B/a B/b B/a B/a B/a",
        "in dup none in in dup none",
        AUDITED | {"id_cache_size": 1},
    ),
    Case(
        50,
        "a group comes once for each id and the rest of it each time",
        "B/a B/t[a,-] B/u[a,-] B/a",
        "in tx tx none tx none",
        AUDITED,
    ),
    Case(
        50,
        "a record of a group that has no number comes each time where numbers count",
        "B/P#1 B/P#1 B/t[P#1,P#0,a] B/u[P#1,P#0,a] B/P#1",
        "in dup none tx tx none tx tx none",
        AUDITED | {"strategy": "audit", "audit_producers": 1},
    ),
)
def test_dead_letters_that_are_deduplicated(case: Case, manner: Manner) -> None:
    """ActiveMQ's shared audit keeps one copy in all, so that a second queue loses its own."""
    scene = Scene(case.settings, manner, route=replace(BY_ADDRESS, dead_letter="DLQ"))
    scene.cluster.create_topic("DLQ")
    assert scene.play(case.trace) == fates(case.fates)


@examples(30)
@given(st.lists(st.sampled_from("abcdef"), min_size=8, max_size=40), st.integers(1, 4), manners)
def test_case_50_of_each_message_that_is_held_one_copy_comes_to_the_dead_letters(
    trace: list[str], size: int, manner: Manner
) -> None:
    accepted: list[str] = []
    told: set[int] = set()
    expected = []
    for name in trace:
        held = {each: at for at, each in enumerate(accepted) if at >= len(accepted) - size}
        if name not in held:
            expected.append("in")
            accepted.append(name)
        else:
            expected.append("none" if held[name] in told else "dup")
            told.add(held[name])
    assert Scene(AUDITED | {"id_cache_size": size}, manner).play(" ".join(trace)) == expected


@pytest.mark.parametrize("keeps_disk", [True, False])
@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_case_50_what_was_reported_survives_restart_and_resize(
    strategy: str, *, keeps_disk: bool
) -> None:
    kept = AUDITED | {"strategy": strategy, "refresh_on_hit": False}
    scene = Scene(kept, Manner(keeps_disk=keeps_disk))
    assert scene.play("1..20 1..20") == fates("in*20 dup*20")
    scene.lose_machine()
    assert scene.play("20..1") == fates("none*20")
    for size in (10, 15, 5):
        scene.configure({"#": kept | {"id_cache_size": size, "window_size": size}})
        assert scene.play("20..16") == fates("none*5")
    assert scene.play("21 21 21") == fates("in dup none")


def test_case_50_an_id_that_a_window_holds_for_its_hits_is_reported_once() -> None:
    scene = Scene(AUDITED | {"strategy": "window", "window_size": 2})
    others = [f"{name} {name} a" for name in "bcdefg"]
    assert scene.play(f"a a {' '.join(others)}") == fates("in dup") + fates("in dup none") * 6


def test_case_50_nobody_can_claim_in_advance_that_a_copy_was_reported() -> None:
    scene = Scene(AUDITED, route=BY_ADDRESS)
    scene.play("X/a")
    scene.put([(ADDRESS, b"ringfence.dead-letters.X"), (DUPLICATE_ID, b"orders-0@0 None a")])
    assert scene.play("X/a X/a") == fates("dup none")
    assert scene.told()[1] == "no-address"


def test_case_50_what_is_no_duplicate_is_dead_lettered_every_time() -> None:
    scene = Scene(AUDITED)
    for _ in range(3):
        scene.put([(DUPLICATE_ID, b"a"), (EXPIRES_AT, b"1")])
    scene.settle()
    assert scene.told() == fates("expired*3")


@pytest.mark.parametrize(
    ("on_duplicate", "fate", "letters"),
    [("dead_letter", "dup", 3), ("drop", "none", 0), ("mark", "mark", 0)],
)
@pytest.mark.parametrize(("strategy", "word"), [("ring", "a"), ("window", "a"), ("audit", "P#1")])
def test_case_51_a_duplicate_is_counted_whatever_becomes_of_it(
    on_duplicate: str, fate: str, letters: int, strategy: str, word: str
) -> None:
    scene = Scene({"strategy": strategy, "on_duplicate": on_duplicate})
    assert scene.play(f"{word} {word} {word} {word}") == fates(f"in {fate}*3")
    turns(scene.life, 30)
    told = scene.board.read()
    assert (told.counts.records_consumed, told.counts.records_accepted, told.counts.duplicates) == (
        4,
        1,
        3,
    )
    assert told.counts.dead_letters == letters
