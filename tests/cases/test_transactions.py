"""Transaction groups between other records, whatever is set, cut, killed or sent again meanwhile.

Random traces through the real loop are judged by the slowest obvious model.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence_client.headers import STREAM
from ringfence_state.model import PartitionId
from tests.cases.case import Manner, every_manner
from tests.cases.chance import manners, restarts
from tests.cases.scene import BY_ADDRESS, Scene
from tests.cases.trace import fates, headers_of, rendered
from tests.fakes.partition import Record
from tests.support.examples import examples

# Against a model.
from tests.support.living import LOG, Living, refused, turns


class Sent(NamedTuple):
    """A message; `position` 0 is of no group. Its word is of `trace`."""

    before: str
    address: str
    group: str
    position: int
    size: int
    identifier: str

    def __str__(self) -> str:
        group = f"{self.group}[{self.position}/{self.size}]" if self.position else ""
        return f"{self.before} {self.address}/{group}{self.identifier}"


class GroupModel:
    """All that was accepted, in order; what waits, by the place in the trace."""

    def __init__(self, size: int, open_max: int, on_duplicate: str) -> None:
        self.size, self.open_max, self.on_duplicate = size, open_max, on_duplicate
        self.accepted: dict[str, list[str]] = {"X": [], "Y": []}
        self.waiting: dict[tuple[str, str], dict[int, int]] = {}
        self.sent: list[Sent] = []
        self.fates: list[str] = []

    def take(self, sent: Sent) -> None:
        self.sent.append(sent)
        self.fates.append("none")
        if sent.position:
            self.join(len(self.sent) - 1, sent)
        else:
            self.judge([len(self.sent) - 1], "dup")

    def join(self, at: int, sent: Sent) -> None:
        name = (sent.address, sent.group)
        places = self.waiting.get(name, {})
        if any(self.sent[place].size != sent.size for place in places.values()):
            self.fates[at] = "invalid-claim"
            return
        if sent.position in places:
            self.fates[places[sent.position]] = "none" if self.on_duplicate == "drop" else "dup"
        self.waiting[name] = {**places, sent.position: at}
        if len(self.waiting[name]) == sent.size:
            whole = self.waiting.pop(name)
            self.judge([whole[position] for position in sorted(whole)], "tx")
        while len(mine := [name for name in self.waiting if name[0] == sent.address]) > (
            self.open_max
        ):
            for place in self.waiting.pop(mine[0]).values():
                self.fates[place] = "group-incomplete"

    def judge(self, places: Sequence[int], reason: str) -> None:
        """All of them go out, or none."""
        ids = [self.sent[place].identifier for place in places]
        accepted = self.accepted[self.sent[places[0]].address]
        known = set(accepted[-self.size :] if self.size else [])
        repeats = [
            bool(self.size) and name != "-" and (name in known or name in ids[:row])
            for row, name in enumerate(ids)
        ]
        if any(repeats) and self.on_duplicate != "mark":
            found = [reason if self.on_duplicate == "dead_letter" else "none"] * len(ids)
        else:
            found = ["mark" if repeat else "in" for repeat in repeats]
            accepted += [name for name, fate in zip(ids, found, strict=True) if fate == "in"]
            accepted[:] = [name for name in accepted if name != "-"]
        for place, fate in zip(places, found, strict=True):
            self.fates[place] = fate


ids = st.sampled_from(["a", "b", "c", "d", "e", "-"])
addresses = st.sampled_from("XXXY")
singles = st.builds(
    lambda before, address, name: [Sent(before, address, "", 0, 0, name)], restarts, addresses, ids
)


@st.composite
def whole_or_half(draw: st.DrawFn) -> list[Sent]:
    """A group in order, or out of it, or some of it, or some of it twice."""
    address, group = draw(addresses), draw(st.sampled_from("tu"))
    size = draw(st.integers(1, 4))
    names = [draw(ids) for _ in range(size)]
    order = draw(
        st.one_of(
            st.just(list(range(size))),
            st.permutations(range(size)),
            st.lists(st.integers(0, size - 1), min_size=1, max_size=6),
        )
    )
    return [Sent(draw(restarts), address, group, place + 1, size, names[place]) for place in order]


@st.composite
def interleaved(draw: st.DrawFn) -> list[Sent]:
    """What several senders sent, each in its own order."""
    senders = draw(st.lists(st.one_of(singles, whole_or_half()), min_size=4, max_size=14))
    senders += [list(again) for again in senders if draw(st.integers(0, 3)) == 0]
    if draw(st.booleans()):
        return [sent for sender in senders for sent in sender]
    left = [list(sender) for sender in senders]
    found = []
    while left := [sender for sender in left if sender]:
        found.append(left[draw(st.integers(0, min(3, len(left)) - 1))].pop(0))
    return found


@examples(60)
@given(
    interleaved(),
    st.sampled_from([0, 1, 2, 4, 100]),
    st.sampled_from([1, 2, 3, 100]),
    st.sampled_from(["dead_letter", "dead_letter", "drop", "mark"]),
    manners,
    st.randoms(use_true_random=False),
)
def test_groups_agree_with_a_list_of_all_that_was_sent(
    trace: list[Sent],
    size: int,
    open_max: int,
    on_duplicate: str,
    manner: Manner,
    chance: random.Random,
) -> None:
    model = GroupModel(size, open_max, on_duplicate)
    told = {"id_cache_size": size, "groups_open_max": open_max, "on_duplicate": on_duplicate}
    scene = Scene(told, manner, route=BY_ADDRESS, noise=chance)
    found = scene.play(rendered(trace))
    for sent in trace:
        model.take(sent)
    assert found == model.fates


# What is set otherwise while a group waits.


@every_manner
def test_fewer_records_are_allowed(manner: Manner) -> None:
    scene = Scene({"group_timeout_ms": 5_000}, manner)
    scene.play("t[1/3]a t[2/3]b")
    scene.configure({"#": {"group_records_max": 2, "group_timeout_ms": 5_000}})
    assert scene.play("t[3/3]c u[d,e]") == fates("group-too-large in in")
    scene.wait(6)
    assert scene.told() == fates("group-incomplete*2 group-too-large in in")
    assert scene.play("a b c") == fates("in*3")


@every_manner
def test_fewer_bytes_are_allowed(manner: Manner) -> None:
    scene = Scene(manner=manner)
    for word in ("t[1/3]a", "t[2/3]b"):
        scene.put(headers_of(word), 1000)
    scene.configure({"#": {"group_bytes_max": 1500}})
    assert scene.play("t[3/3]c a b c") == fates("group-too-large in*3")
    assert scene.told()[:2] == fates("group-too-large*2")


@every_manner
def test_fewer_groups_may_wait(manner: Manner) -> None:
    scene = Scene(manner=manner)
    assert scene.play("t[1/2]a u[1/2]b v[1/2]c w[1/2]d") == fates("none*4")
    scene.configure({"#": {"groups_open_max": 2}})
    assert scene.play("x[1/2]e") == ["none"]
    assert scene.told() == fates("group-incomplete*3 none none")
    assert scene.play("w[2/2]f x[2/2]g") == fates("in in")


@every_manner
def test_the_groups_of_an_address_do_not_give_way_to_those_of_another(manner: Manner) -> None:
    few = {"X": {"groups_open_max": 1}, "Y": {"groups_open_max": 3}}
    scene = Scene(manner=manner, addresses=few, route=BY_ADDRESS)
    assert scene.play("Y/t[1/2]a Y/u[1/2]b Y/v[1/2]c X/t[1/2]a") == fates("none*4")
    assert scene.play("X/u[1/2]b") == ["none"]
    assert scene.told() == fates("none*3 group-incomplete none")


@every_manner
@pytest.mark.parametrize(
    ("before", "waiting", "after", "rest", "expected"),
    [
        ("ring", "t[1/2]a", "window", "t[2/2]b a b", "in dup dup"),
        ("window", "t[1/2]a", "off", "t[2/2]a a", "in in"),
        ("ring", "t[1/2]P#1", "sequence", "t[2/2]P#2 P#1 P#2 P#3", "in dup dup in"),
        ("sequence", "t[1/2]P#2", "sequence", "t[2/2]P#1 P#1 P#2", "tx in in"),
        ("sequence", "t[1/2]P#1", "ordered", "t[2/2]P#1.1<0 P#1.2<1", "in in"),
        ("ordered", "t[1/2]P#1.1<0", "ring", "t[2/2]a P#1.1<0 a", "in in dup"),
    ],
)
def test_another_strategy_judges_what_waits(
    before: str, waiting: str, after: str, rest: str, expected: str, manner: Manner
) -> None:
    scene = Scene({"strategy": before}, manner)
    assert scene.play(waiting) == ["none"]
    scene.configure({"#": {"strategy": after}})
    assert scene.play(rest) == fates(expected)
    assert scene.told()[0] == fates(expected)[0]


def test_what_another_strategy_cannot_read_rejects_its_group() -> None:
    scene = Scene()
    scene.put([*headers_of("t[1/2]P#1"), (STREAM, b"one")])
    scene.settle()
    scene.configure({"#": {"strategy": "ordered"}})
    assert scene.play("t[2/2]P#1.2<1") == fates("invalid-claim")
    assert scene.told()[0] == "invalid-claim"


@every_manner
@pytest.mark.parametrize("keeps", [True, False])
def test_whether_an_address_is_kept_may_change_while_a_group_waits(
    *, keeps: bool, manner: Manner
) -> None:
    scene = Scene({"persist_id_cache": keeps}, manner)
    scene.play("t[1/2]a")
    scene.configure({"#": {"persist_id_cache": not keeps}})
    assert scene.play("t[2/2]b") == fates("in")
    assert scene.told()[0] == "in"


@every_manner
def test_an_address_is_not_held_for_a_group_that_was_rejected(manner: Manner) -> None:
    scene = Scene({"addresses_max": 1, "group_timeout_ms": 5_000}, manner, route=BY_ADDRESS)
    assert scene.play("X/t[1/2]a Y/b") == fates("none too-many-addresses")
    assert scene.play("X/t[2/2]a Y/b X/a") == fates("tx in too-many-addresses")


# Time.


def test_a_group_that_begins_where_one_ended_has_its_own_time() -> None:
    scene = Scene({"group_timeout_ms": 5_000})
    scene.play("t[1/2]a")
    scene.wait(4)
    assert scene.play("t[2/2]b t[1/2]c") == fates("in none")
    scene.wait(3)
    assert scene.told() == fates("in in none")
    scene.wait(3)
    assert scene.told() == fates("in in group-incomplete")


def test_groups_of_every_partition_have_their_time() -> None:
    living = Living(addresses={"#": {"group_timeout_ms": 5_000}}, partitions=3)
    loop = living.running()

    def send(partition: int, word: str) -> None:
        record = Record(None, word.encode(), headers_of(word), living.cluster.now_ms)
        living.cluster.write("orders", partition, record)

    for partition in (0, 1):
        send(partition, "t[1/2]a")
    turns(loop, 2)
    living.cluster.wait(3)
    send(1, "u[1/2]b")
    send(2, "t[1/2]a")
    turns(loop, 2)
    living.faults.at["commit_transaction"] = iter([None, refused()])
    living.cluster.wait(3)
    turns(loop, 4)
    assert [living.values("orders.dlq", n) for n in range(3)] == [["t[1/2]a"], ["t[1/2]a"], []]
    living.cluster.wait(3)
    turns(loop, 4)
    assert living.values("orders.dlq", 1) == ["t[1/2]a", "u[1/2]b"]
    assert living.values("orders.dlq", 2) == ["t[1/2]a"]
    assert [living.committed(PartitionId("orders", n)) for n in range(3)] == [1, 2, 1]


# What the broker refuses.


def test_a_copy_that_the_state_cannot_take_is_dead_lettered_alone() -> None:
    scene = Scene(manner=Manner(records_max=1))
    scene.cluster.create_topic(
        LOG.topic, record_bytes_max=2 << 20, limit_bytes=500, cleanup_policy="compact"
    )
    scene.play("t[1/2]a")
    scene.put(headers_of("t[1/2]a"), 1000)
    assert scene.play("t[2/2]b") == ["in"]
    assert scene.told() == fates("in too-large in")


# Sessions.


@every_manner
def test_what_waits_of_an_earlier_session_is_kept_out_with_its_group(manner: Manner) -> None:
    scene = Scene({"strategy": "sequence"}, manner)
    first = scene.log_on("P")
    assert scene.play_in_session(first, "t[1/2]P#1 u[1/2]P#2") == fates("none none")
    second = scene.log_on("P")
    assert scene.last_number("P") is None
    assert scene.play("t[2/2]Q#1") == fates("name-in-use")
    assert scene.play_in_session(second, "u[P#1,P#2]") == fates("in in")
    assert scene.told() == fates("name-in-use dup name-in-use in in")
    assert scene.last_number("P") == 2
