"""Records that a topic is known to refuse: each costs itself, and no transaction."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ringfence_client.headers import DUPLICATE_ID, DeadLetter
from tests.fakes.log import OTHERS
from tests.fakes.partition import Record
from tests.loop.test_two_hops import BY_ADDRESS, ROUTE, WIDE, Hops
from tests.support.living import Living, turns

HOUR_MS = 3_600_000
ALL, FEW = 100, range(0, 100, 20)
KINDS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "no key": ({"cleanup.policy": "compact"}, "missing-key"),
    "too old": ({"message.timestamp.before.max.ms": str(HOUR_MS)}, "invalid-timestamp"),
    "too new": ({}, "invalid-timestamp"),
    "too large": ({}, "too-large"),
}


def bad(kind: str, now_ms: int) -> Record:
    later_ms = {"too old": -2 * HOUR_MS, "too new": 2 * HOUR_MS}.get(kind, 0)
    key = None if kind == "no key" else b"k"
    value = b"." * (2 << 20) if kind == "too large" else b"bad"
    return Record(key, value, [], now_ms + later_ms)


@pytest.mark.parametrize("topic", ["orders.unique", "orders.dlq"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_in_twenty_that_a_topic_refuses_aborts_no_transaction(kind: str, topic: str) -> None:
    settings, reason = KINDS[kind]
    living = Living(addresses={"#": {"on_duplicate": "dead_letter"}})
    living.cluster.create_topic("orders.dlq", record_bytes_max=4 << 20)
    living.cluster.create_topic(
        topic, cleanup_policy=settings.get("cleanup.policy", "delete"), settings=settings
    )
    for number in range(ALL):
        record = Record(b"k", b"%d" % number, [], living.cluster.now_ms)
        if number in FEW:
            record = bad(kind, living.cluster.now_ms)
        identifier = b"once" if number in FEW and topic == "orders.dlq" else b"%d" % number
        headers: list[tuple[str, bytes | None]] = [(DUPLICATE_ID, identifier)]
        living.cluster.write("orders", 0, record._replace(headers=headers))
    turns(living.running(), 5)
    assert living.faults.passed["abort_transaction"] == 0
    assert living.committed() == ALL
    fates = {name: living.cluster.records(name) for name in ("orders.dlq", "g.dead-letters")}
    letters = [letter for each in fates.values() for letter in each]
    assert len(living.cluster.records("orders.unique")) + len(letters) == ALL
    if topic == "orders.unique":
        assert living.reasons("orders.dlq") == [reason] * len(FEW)
    elif kind == "no key":
        # The first of the five is no duplicate.
        assert living.reasons("g.dead-letters") == ["duplicate"] * (len(FEW) - 1)


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, 10**15])
def test_what_input_and_output_take_goes_through_both_hops(ahead_ms: int) -> None:
    unlimited = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    hops = Hops()
    cluster = hops.living.cluster
    cluster.create_topic("orders.unique", WIDE, settings=unlimited)
    hops.deciding.active_settings.doubt_targets()
    record = Record(b"k", b"v", [(DUPLICATE_ID, b"a")], cluster.now_ms + ahead_ms)
    cluster.write("orders", 0, record)
    hops.turns(6)
    (output,) = hops.out("orders.unique")
    assert output.timestamp_ms == record.timestamp_ms
    assert hops.living.faults.passed["abort_transaction"] == 0


def test_a_repartition_topic_of_before_is_made_as_little_strict_as_a_new_one() -> None:
    living = Living(ROUTE, partitions=WIDE, by_address_partitions=2)
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    living.cluster.create_topic(BY_ADDRESS, 2, retention=kept)
    made = Hops().living.cluster.logs[BY_ADDRESS].settings
    assert living.cluster.logs[BY_ADDRESS].settings == OTHERS != made
    living.running()
    assert living.cluster.logs[BY_ADDRESS].settings == made


def test_a_topic_that_became_compacted_is_known_to_be_after_its_first_refusal() -> None:
    """Each record that it refuses before that costs its transaction."""
    living = Living()
    loop = living.running()
    living.send("a")
    turns(loop)
    topic = living.cluster.logs["orders.unique"]
    living.cluster.logs["orders.unique"] = replace(topic, cleanup_policy="compact")
    living.send("b")
    turns(loop, 20)
    aborts = living.faults.passed["abort_transaction"]
    assert aborts > 0
    loop.active_settings.doubt_targets()
    living.send("c")
    turns(loop, 20)
    assert living.faults.passed["abort_transaction"] == aborts
    told = [dict(record.headers or []) for record in living.cluster.records("orders.dlq")]
    assert [headers[DeadLetter.REASON] for headers in told][-1] == b"missing-key"


def test_a_topic_that_is_compacted_no_more_is_known_to_be_within_half_a_minute() -> None:
    living = Living()
    compacted = replace(living.cluster.logs["orders.unique"], cleanup_policy="compact")
    living.cluster.logs["orders.unique"] = compacted
    living.send("a")
    loop = living.running()
    living.cluster.logs["orders.unique"] = replace(compacted, cleanup_policy="delete")
    living.send("b")
    turns(loop)
    assert living.values("orders.dlq") == ["a", "b"]
    living.clock.sleep(31)
    turns(loop)
    living.send("c")
    turns(loop)
    assert living.values("orders.unique") == ["c"]
