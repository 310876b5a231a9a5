"""Where Ringfence is better than the systems it learned from: how they fail, and that it does not.

The numbers are those of a list of twelve promises; what is about commands stands in
`test_commands.py`.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pytest

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from ringfence_service.processor.transaction import OutcomeUnknownError
from ringfence_service.queries.ids import IdLocation
from tests.cases.case import Manner, Settings, every_manner
from tests.cases.scene import BY_ADDRESS, Scene
from tests.cases.trace import fates, headers_of
from tests.fakes.log import START_MS
from tests.simulation.disk import Disk
from tests.simulation.trouble import Crash
from tests.support.living import ROUTE, refused, turn_until_running, turns

# Of each strategy two records that it accepts, one after the other.
WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "ring": ("a", "b"),
    "window": ("P:a", "P:b"),
    "audit": ("P#1", "P#2"),
    "sequence": ("P#1", "P#2"),
    "ordered": ("P#1.1<0", "P#1.2<1"),
}

ROUTE_THAT_STAMPS: Final = replace(ROUTE, missing_id="stamp")

every_strategy = pytest.mark.parametrize("strategy", WORDS)


# 1. Artemis checks and adds in two steps: 4 senders of the same 3000 ids left up to 3009.


@pytest.mark.parametrize("records_max", [1, 7, 10_000])
def test_01_of_the_copies_of_racing_senders_one_is_accepted(records_max: int) -> None:
    chance = random.Random(records_max)
    scene = Scene(manner=Manner(records_max))
    loop = scene.life
    senders = [iter(range(500)) for _ in range(4)]
    while senders:
        sender = chance.choice(senders)
        number = next(sender, None)
        if number is None:
            senders.remove(sender)
            continue
        scene.put([(DUPLICATE_ID, b"%d" % number)])
        if chance.random() < 0.1:
            loop.turn()
    scene.settle()
    accepted = Counter(
        dict(record.headers or [])[DUPLICATE_ID]
        for record in scene.cluster.records("orders.unique")
    )
    assert accepted == {b"%d" % number: 1 for number in range(500)}
    assert Counter(scene.told()) == {"in": 500, "dup": 1500}


def test_01_an_instance_that_was_taken_for_dead_accepts_nothing_a_second_time() -> None:
    scene = Scene()
    loop = scene.life
    frozen = scene._clients[-1]

    def taken_over() -> Iterator[None]:
        """While it stands before its commit, another one does all its work."""
        del scene.faults.at["commit_transaction"]
        frozen.freeze()
        scene.cluster.wait(60)
        other = scene.loop("1", Disk(scene.cluster.step))
        turn_until_running(other)
        turns(other, 3)
        frozen.thaw()
        yield None

    scene.faults.at["commit_transaction"] = taken_over()
    for identifier in (b"a", b"b", b"a"):
        scene.put([(DUPLICATE_ID, identifier)])
    with pytest.raises(OutcomeUnknownError):
        turns(loop)
    assert scene.told() == fates("in in dup")


# 2. Artemis keeps the id of a message that failed behind the check, and drops its retry.


@every_manner
@every_strategy
@pytest.mark.parametrize("is_known", [True, False], ids=["known too large", "the broker refuses"])
def test_02_a_message_that_could_not_be_written_is_not_remembered(
    strategy: str, manner: Manner, *, is_known: bool
) -> None:
    scene = Scene({"strategy": strategy}, manner)
    known_bytes = 300 if is_known else 1 << 20
    scene.cluster.create_topic("orders.unique", record_bytes_max=known_bytes, limit_bytes=300)
    first, second = WORDS[strategy]
    scene.put(headers_of(first), 500)
    assert scene.play(f"{first} {first}") == fates("in dup")
    scene.put(headers_of(second), 500)
    assert scene.play(f"{second} {second}") == fates("in dup")
    assert scene.told() == fates("too-large in dup too-large in dup")


@every_strategy
@pytest.mark.parametrize("step", ["send", "send_offsets_to_transaction", "commit_transaction"])
def test_02_a_transaction_that_failed_leaves_nothing_behind(strategy: str, step: str) -> None:
    scene = Scene({"strategy": strategy})
    first, second = WORDS[strategy]
    scene.faults.at[step] = iter([refused(), refused()])
    assert scene.play(f"{first} {second} {first}") == fates("in in dup")
    turns(scene.life, 30)
    assert scene.board.read().counts.transactions_aborted == 2


@every_strategy
@pytest.mark.parametrize(
    "step", ["send", "commit_transaction", "commit_transaction.done", "store.apply"]
)
@pytest.mark.parametrize("keeps_disk", [True, False])
def test_02_a_process_that_died_leaves_nothing_half_done(
    strategy: str, step: str, *, keeps_disk: bool
) -> None:
    scene = Scene({"strategy": strategy})
    first, second = WORDS[strategy]
    scene.play("-")
    assert scene.told() == ["in"]
    for word in (first, second, first):
        scene.put(headers_of(word))
    loop = scene.life
    scene.faults.at[step] = iter([Crash()])  # type: ignore[list-item]  # it ends the process
    with pytest.raises(Crash):
        turns(loop)
    scene.lose_process()
    if not keeps_disk:
        scene.lose_disk()
    scene.settle()
    assert scene.told() == fates("in in in dup")


# 3. With a cache of size 0 Artemis drops every message that a bridge has stamped.


@every_manner
@pytest.mark.parametrize(
    "settings",
    [{"id_cache_size": 0}, {"strategy": "off"}, {"strategy": "window", "window_size": 0}],
    ids=["ring", "off", "window"],
)
def test_03_without_detection_nothing_is_lost_stamped_messages_included(
    settings: Settings, manner: Manner
) -> None:
    stamping = Scene(settings, manner, route=ROUTE_THAT_STAMPS)
    assert stamping.play("- a - a -") == fates("in*5")
    after = Scene(settings, manner)
    for record in stamping.cluster.records("orders.unique") * 2:
        after.put(list(record.headers or []))
    after.settle()
    assert after.told() == fates("in*10")


NOTHING: Final = {"id_cache_size": 0}


@every_manner
@pytest.mark.parametrize(
    ("addresses", "trace", "expected"),
    [
        ({"#": NOTHING}, "~1 ~1 a a ~1", "in*5"),
        ({"#": NOTHING}, "t[a,a] a t[a,~1] u[~1,~1] u[-,-]", "in*9"),
        ({"#": {"strategy": "off"}}, "~1 ~1 t[a,a] t[a,a]", "in*6"),
        ({"BRIDGE.#": NOTHING}, "~1 ~1 a a", "in in in dup"),
        ({"orders": NOTHING}, "~1 ~1 a a", "in dup in in"),
        ({"#": NOTHING | {"strategy": "sequence"}}, "~1 ~1 P#1 P#1", "in in in dup"),
        ({"#": NOTHING | {"dead_letter_audit": True}}, "a a ~1 ~1", "in*4"),
    ],
)
def test_03_a_cache_of_size_0_takes_nothing_from_the_others(
    addresses: Mapping[str, Settings], trace: str, expected: str, manner: Manner
) -> None:
    assert Scene(manner=manner, addresses=addresses).play(trace) == fates(expected)


# 4. Of one id twice in a transaction Artemis delivers both; half a resend is two transactions.


@every_manner
@every_strategy
def test_04_one_id_twice_in_a_group_rejects_it_and_nothing_of_it_is_remembered(
    strategy: str, manner: Manner
) -> None:
    scene = Scene({"strategy": strategy}, manner)
    first, second = WORDS[strategy]
    assert scene.play(f"t[{first},{second},{second}]") == fates("tx*3")
    assert scene.play(f"t[{first},-,{second}] u[{first},-]") == fates("in*3 tx*2")
    assert scene.play(f"{first} {second}") == fates("dup dup")


@every_manner
@every_strategy
@pytest.mark.parametrize("cut", ["", "|"])
def test_04_a_group_that_is_sent_again_is_judged_as_one(
    strategy: str, cut: str, manner: Manner
) -> None:
    scene = Scene({"strategy": strategy}, manner)
    first, second = WORDS[strategy]
    whole = f"t[{first},{second},-]"
    assert scene.play(f"t[1/3]{first} t[2/3]{second} {cut} {whole}") == fates("dup dup in in in")
    assert scene.play(f"{cut} {whole} t[1/3]{first} {cut} t[3/3]-") == fates("tx*3 none none")
    scene.wait(61)
    assert scene.told()[-2:] == fates("group-incomplete*2")


@every_manner
@every_strategy
def test_04_what_was_missing_is_taken_from_what_is_sent_again_and_the_rest_stays_out(
    strategy: str, manner: Manner
) -> None:
    scene = Scene({"strategy": strategy}, manner)
    first, second = WORDS[strategy]
    half, whole = f"t[1/3]{first} t[3/3]-", f"t[{first},{second},-]"
    assert scene.play(f"{half} {whole}") == fates("dup in in in none")
    scene.wait(61)
    assert scene.told()[-1] == "group-incomplete"


# 5. Artemis never resizes a cache that runs, and tells of no single id.


def test_05_an_id_tells_where_it_stood_and_how_long_it_stays() -> None:
    scene = Scene({"id_cache_size": 3})
    scene.play("@5 - a @7 b")
    found = scene.look_up("a")
    assert found.sightings == (IdLocation("orders", 0, 1, START_MS + 5000, slots_to_eviction=2),)
    assert scene.play("c d a") == fates("in in in")
    assert not scene.look_up("b").known


@every_manner
@pytest.mark.parametrize("below_window", ["duplicate", "accept"])
def test_05_a_deeper_audit_fills_up_from_what_was_held(below_window: str, manner: Manner) -> None:
    audit = {"strategy": "audit", "below_window": below_window}
    scene = Scene(audit | {"audit_depth": 4}, manner)
    scene.play("P#1..10")
    scene.configure({"#": audit | {"audit_depth": 8}})
    assert scene.play("P#7..10") == fates("dup*4")
    if below_window == "duplicate":
        assert scene.play("P#6..1") == fates("dup*6"), "as before"
        assert scene.play("P#11 P#6..1") == fates("in dup*6"), "and when it slides"
    else:
        assert scene.play("P#6 P#6 P#2 P#2") == fates("in dup in in"), "the first is held now"
    assert scene.play("P#12..19 P#12..19") == fates("in*8 dup*8")


@every_manner
def test_05_a_shallower_audit_forgets_what_it_held_beyond_for_good(manner: Manner) -> None:
    audit = {"strategy": "audit", "below_window": "accept"}
    scene = Scene(audit | {"audit_depth": 8}, manner)
    scene.play("P#1..10")
    scene.configure({"#": audit | {"audit_depth": 2}})
    assert scene.play("P#9 P#8 P#11 P#10 P#9") == fates("dup in in dup in")


@every_manner
def test_05_a_smaller_window_holds_the_ids_that_were_seen_last(manner: Manner) -> None:
    window = {"strategy": "window"}
    scene = Scene(window | {"window_size": 4}, manner)
    scene.play("a b c d a")
    scene.configure({"#": window | {"window_size": 2}})
    assert scene.play("d a") == fates("dup dup")
    assert scene.play("c b d") == fates("in in in")


@every_manner
def test_05_an_audit_of_fewer_producers_holds_those_that_were_heard_of_last(
    manner: Manner,
) -> None:
    audit = {"strategy": "audit"}
    scene = Scene(audit | {"audit_producers": 4}, manner)
    scene.play("a#1 b#1 c#1 d#1 a#1")
    scene.configure({"#": audit | {"audit_producers": 2}})
    assert scene.play("d#1 a#1") == fates("dup dup")
    assert scene.play("c#1 b#1 d#1") == fates("in in in")


@every_manner
@pytest.mark.parametrize(
    ("strategy", "first", "second"), [("sequence", "#1", "#2"), ("ordered", "#1.1<0", "#1.2<1")]
)
def test_05_where_fewer_publishers_are_held_those_that_are_known_stay_known(
    strategy: str, first: str, second: str, manner: Manner
) -> None:
    scene = Scene({"strategy": strategy, "publishers_max": 3}, manner)
    scene.play(f"P{first} Q{first} R{first}")
    scene.configure({"#": {"strategy": strategy, "publishers_max": 1}})
    assert scene.play(f"S{first} R{second} P{first}") == fates("invalid-claim in dup")
    scene.configure({"#": {"strategy": strategy, "publishers_max": 4}})
    assert scene.play(f"P{first} Q{first} R{second} S{first}") == fates("dup dup dup in")


@every_manner
def test_05_an_id_in_a_window_can_be_looked_up_too(manner: Manner) -> None:
    window = {"strategy": "window", "window_size": 3, "window_ms": 10_000}
    scene = Scene(window, manner)
    assert scene.play("@1 a P:a @5 b @8 a") == fates("in in in dup")
    ours, of_p = sorted(scene.look_up("a").sightings)
    assert ours == IdLocation("orders", 0, 0, START_MS + 8000, slots_to_eviction=3)
    assert of_p == IdLocation("orders", 0, 1, START_MS + 1000, slots_to_eviction=1)
    scene.play("@14 b")
    assert scene.look_up("a").sightings == (ours._replace(slots_to_eviction=2),), "P's is too old"
    scene.play("c d")
    assert not scene.look_up("a").known


@pytest.mark.parametrize("length", [31, 1023])
def test_05_however_long_the_names_are_an_id_in_a_window_is_found(length: int) -> None:
    scene = Scene({"strategy": "window"})
    publisher, identifier = "P" * length, "i" * length
    assert scene.play(f"{publisher}:{identifier} {publisher}x:{identifier}") == fates("in in")
    assert [seen.offset for seen in scene.look_up(identifier).sightings] == [1, 0]
    assert not scene.look_up(f"{publisher}{identifier}").known


# 6. Artemis drops a duplicate with a warning in its log: no counter, no dead letter.


@every_manner
@pytest.mark.parametrize("strategy", ["ring", "window"])
def test_06_every_duplicate_is_counted_and_dead_lettered_with_its_originals_place(
    strategy: str, manner: Manner
) -> None:
    scene = Scene({"strategy": strategy}, manner)
    words = ["a", "b", "a", "c", "c", "a", "d", "b", "-", "a"]
    scene.play(" ".join(words))
    copies = [at for at, word in enumerate(words) if word != "-" and word in words[:at]]
    letters = scene.letters()
    assert [int(letter[DeadLetter.OFFSET]) for letter in letters] == copies
    assert [letter[DeadLetter.ORIGINAL] for letter in letters] == [
        f"orders-0@{words.index(words[at])}" for at in copies
    ]
    assert [letter[DeadLetter.ID] for letter in letters] == [words[at] for at in copies]
    turns(scene.life, 30)
    told = scene.board.read()
    assert (told.counts.duplicates, told.counts.dead_letters) == (len(copies), len(copies))


# 7. MSMQ's lists and the audit of an ActiveMQ client are gone after a restart.


@every_strategy
def test_07_neither_a_restart_nor_a_lost_machine_makes_anything_forgotten(strategy: str) -> None:
    scene = Scene({"strategy": strategy})
    first, second = WORDS[strategy]
    assert scene.play(first) == ["in"]
    scene.kill()
    assert scene.play(first) == ["dup"]
    scene.lose_machine()
    assert scene.play(f"{first} {second}") == fates("dup in")
    scene.cluster.compact(0)
    scene.lose_machine()
    assert scene.play(f"{second} {first}") == fates("dup dup")


# 8. Below ActiveMQ's bins a number is new every time, and one far jump wipes them.


@every_manner
def test_08_who_tells_no_number_is_let_through_however_many_publishers_there_are(
    manner: Manner,
) -> None:
    scene = Scene({"strategy": "sequence", "publishers_max": 1}, manner)
    assert scene.play("- P#0 P#1 - P#0 Q#0 P#2 Q#1") == fates("in*7 invalid-claim")
    assert scene.held() == 1


# 9. A depth of 100 can keep 65 numbers in ActiveMQ's bins, a depth of 50 only one.


@pytest.mark.parametrize("depth", [1, 50, 64, 65, 100])
@pytest.mark.parametrize("first", [1, 65])
def test_09_a_depth_of_n_keeps_n_numbers(depth: int, first: int) -> None:
    scene = Scene({"strategy": "audit", "audit_depth": depth, "below_window": "accept"})
    last = first + 2 * depth
    scene.play(f"P#{first}..{last}")
    scene.kill()
    assert scene.play(f"P#{last}..{last - depth + 1}") == fates(f"dup*{depth}")
    assert scene.play(f"P#{last - depth}") == ["in"]


# 10. Others bound by time or by size, for all addresses alike.


@every_manner
def test_10_time_and_size_bound_together_and_for_each_address(manner: Manner) -> None:
    short = {"strategy": "window", "window_ms": 10_000, "window_size": 3}
    long = short | {"window_ms": 100_000}
    wide = long | {"window_size": 4}
    scene = Scene(manner=manner, route=BY_ADDRESS, addresses={"S": short, "L": long, "W": wide})
    for identifier in "abcd":
        assert scene.play(f"@0 S/{identifier} L/{identifier} W/{identifier}") == fates("in*3")
    assert scene.play("S/d L/d W/d S/b L/b W/b") == fates("dup*6")
    assert scene.play("S/a L/a W/a") == fates("in in dup"), "by size"
    assert scene.play("@11 S/d L/d W/d") == fates("in dup dup"), "by time"


# 11. Nobody tells for how long a cache remembers.


@every_manner
def test_11_the_horizon_tells_how_long_ago_an_id_may_have_come_to_be_known(manner: Manner) -> None:
    scene = Scene({"id_cache_size": 3}, manner)

    def horizon_ms() -> int | None:
        (told,) = scene.address().partitions
        return told.horizon_ms

    scene.play("@0 a @10 b @20 c")
    assert horizon_ms() is None, "it has forgotten nothing yet"
    scene.play("@35 d c")
    assert horizon_ms() == 25_000
    scene.play("@36 e f")
    assert horizon_ms() == 1_000
    scene.lose_machine()
    assert horizon_ms() == 1_000
    scene.configure({"#": {"id_cache_size": 2}})
    assert horizon_ms() == 0
    assert scene.play("e f d c") == fates("dup dup in in")


@every_manner
def test_11_the_horizon_of_a_window_is_reported_only_while_its_size_bounds_it(
    manner: Manner,
) -> None:
    scene = Scene({"strategy": "window", "window_size": 2, "window_ms": 60_000}, manner)
    scene.play("@0 a")
    (told,) = scene.address().partitions
    assert (told.oldest_time_ms, told.newest_time_ms) == (START_MS, START_MS)
    assert told.horizon_ms is None
    scene.play("@10 b @25 c")
    (told,) = scene.address().partitions
    assert (told.oldest_time_ms, told.newest_time_ms) == (START_MS + 10_000, START_MS + 25_000)
    assert (told.ids_held, told.horizon_ms) == (2, 15_000)


# 12. Who asks why a message is gone finds a line in a log at best.


@pytest.mark.parametrize(
    ("settings", "trace", "cause"),
    [
        ({"strategy": "ring"}, "- a a", "its id was accepted at orders-0@1 already"),
        ({"strategy": "window"}, "- P:a P:a", "its id was accepted at orders-0@1 already"),
        ({"strategy": "audit"}, "P#7 P#7", "its number 7 was accepted already"),
        (
            {"strategy": "audit", "audit_depth": 5},
            "P#7 P#2",
            "its number 2 is below the last 5 up to 7",
        ),
        (
            {"strategy": "audit", "audit_jump_max": 1000},
            "P#64 P#1065",
            "its number 1065 is 1001 above the last, 64; audit_jump_max is 1000",
        ),
        (
            {"strategy": "sequence"},
            "P#7 P#7",
            "its number is 7, the last one of its publisher, which was accepted at orders-0@0",
        ),
        (
            {"strategy": "sequence"},
            "P#7 P#2",
            "its number 2 is below 7, the last one of its publisher",
        ),
        (
            {"strategy": "ordered"},
            "P#5.1<0 P#5.1<0",
            "its number is 1, and number 1 of stream 5 was accepted at orders-0@0",
        ),
        (
            {"strategy": "ordered"},
            "P#5.1<0 P#5.3<2",
            "it follows number 2, and the one after 1 is expected",
        ),
        (
            {"strategy": "ordered"},
            "P#5.1<0 P#4.1<0",
            "it is of stream 4, and its publisher has begun stream 5",
        ),
    ],
)
def test_12_a_dead_letter_says_why(settings: Settings, trace: str, cause: str) -> None:
    scene = Scene(settings)
    scene.play(trace)
    (letter,) = scene.letters()
    assert cause in letter[DeadLetter.CAUSE]


@pytest.mark.parametrize("strategy", ["ring", "window"])
@pytest.mark.parametrize("word", ["a", "~7", "t[1/1]~7"])
def test_12_the_message_that_a_copy_repeats_is_found_by_its_id(word: str, strategy: str) -> None:
    scene = Scene({"strategy": strategy})
    scene.play(f"- {word} - {word}")
    (letter,) = scene.letters()
    (sighting,) = scene.look_up(letter[DeadLetter.ID], letter[DeadLetter.ADDRESS]).sightings
    place = f"{sighting.topic}-{sighting.partition}@{sighting.offset}"
    assert letter[DeadLetter.ORIGINAL] == place == "orders-0@1"
