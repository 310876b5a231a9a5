"""Logs that contradict a committed offset are believed once the brokers had time to know them."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from confluent_kafka import KafkaException

from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.model import TopicInfo
from ringfence_state.model import PartitionId
from tests.fakes.admin import FakeAdmin
from tests.support.helpers import ending
from tests.support.living import LOG, ORDERS, late
from tests.unit.service.processor.test_assignment import Member, commit, member, remembering
from tests.unit.service.processor.test_restore import OneByOne, run_of


def test_a_recreated_changelog_contradicts_the_committed_offset() -> None:
    living = remembering()
    commit(living, 0, changelog_topic_id="an older one")
    ours = member(living)
    ours.hear()
    with ending(ExitCode.CONTRADICTION, "created again"):
        ours.assignment.step()
    assert ours.fetched == []


@pytest.mark.row(19)
def test_a_truncated_changelog_contradicts_the_committed_offset() -> None:
    living = remembering()
    commit(living, 0, last=3)
    ours = member(living)
    ours.hear()
    stay_short(ours)
    with pytest.raises(ExitError, match="was truncated"):
        ours.take_over()


def test_a_broker_that_has_just_started_may_tell_less_of_a_changelog_than_it_has() -> None:
    living = remembering()
    commit(living, 0, last=3)
    ours = member(living)
    ours.hear()
    ours.assignment.step()
    living.cluster.write(*LOG, run_of(3))
    living.clock.sleep(1)
    ours.take_over()
    assert ours.assignment.settled


def stay_short(ours: Member) -> None:
    """Ask for ten seconds, and hear each time that the logs are short."""
    for _ in range(5):
        assert "seem to be truncated" in (ours.assignment.step() or "")
        ours.living.clock.sleep(2)


def told_short(monkeypatch: pytest.MonkeyPatch, log: PartitionId, times: int) -> None:
    """The next answers report three records less of a log than it has."""
    genuine, left = FakeAdmin.ends, iter(range(times))

    def ends(self: FakeAdmin, sources: Iterable[PartitionId]) -> dict[PartitionId, int]:
        found = genuine(self, sources)
        if log in found and next(left, None) is not None:
            found[log] = max(0, found[log] - 3)
        return found

    monkeypatch.setattr(FakeAdmin, "ends", ends)


@pytest.mark.row(32)
@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
@pytest.mark.parametrize("log", [ORDERS, LOG], ids=["input", "changelog"])
def test_an_end_that_is_reported_short_for_a_moment_is_not_believed(
    policy: str, log: PartitionId, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = remembering(offset=3, on_lost_offset=policy)
    living.send("a", "b", "c")
    told_short(monkeypatch, log, times=3)
    ours = member(living)
    ours.hear()
    for _ in range(3):
        assert ours.assignment.step() == (
            "the broker to report the whole logs of orders-0, which seem to be truncated"
        )
        living.clock.sleep(1)
    ours.take_over()
    assert ours.assignment.running[ORDERS].next_offset == 3
    assert ours.offsets() == []


@pytest.mark.row(32)
def test_leaders_that_start_one_after_the_other_are_not_taken_for_one_that_lost_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = member(remembering(offset=3))
    ours.living.send("a", "b", "c")
    ours.hear()
    for log in (LOG, ORDERS):
        with monkeypatch.context() as start:
            told_short(start, log, times=4)
            for _ in range(4):
                assert "seem to be truncated" in (ours.assignment.step() or "")
                ours.living.clock.sleep(2)
    ours.take_over()
    assert ours.assignment.running[ORDERS].next_offset == 3


@pytest.mark.row(32)
def test_a_leader_that_starts_twice_is_not_taken_for_one_that_lost_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = member(remembering(offset=3))
    ours.living.send("a", "b", "c")
    told_short(monkeypatch, ORDERS, times=2)
    ours.hear()
    for _ in range(2):
        assert "seem to be truncated" in (ours.assignment.step() or "")
        ours.living.clock.sleep(11)
    ours.take_over()
    assert ours.assignment.running[ORDERS].next_offset == 3


@pytest.mark.row(32)
def test_an_input_that_stays_shorter_than_its_offset_is_believed_after_a_while() -> None:
    ours = member(remembering(offset=9))
    ours.living.send("a")
    ours.hear()
    stay_short(ours)
    with pytest.raises(ExitError, match="the group is at 9"):
        ours.take_over()


@pytest.mark.row(32)
def test_a_process_that_stands_still_with_an_answer_does_not_believe_it_sooner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living = remembering(offset=3)
    living.send("a", "b", "c")
    told_short(monkeypatch, ORDERS, times=2)
    ours = member(living)
    ours.hear()
    ours.assignment.step()
    living.clock.sleep(2)
    starts = FakeAdmin.starts

    def late(admin: FakeAdmin, logs: Iterable[PartitionId]) -> dict[PartitionId, int]:
        found = starts(admin, logs)
        living.clock.sleep(20)
        return found

    with monkeypatch.context() as standstill:
        standstill.setattr(FakeAdmin, "starts", late)
        assert "seem to be truncated" in (ours.assignment.step() or "")
    living.clock.sleep(1)
    ours.take_over()
    assert ours.assignment.running[ORDERS].next_offset == 3


@pytest.mark.row(32)
def test_a_partition_that_comes_back_is_waited_for_as_long_as_before() -> None:
    ours = member(remembering(offset=9))
    ours.hear()
    for _ in range(3):
        assert "seem to be truncated" in (ours.assignment.step() or "")
        ours.living.clock.sleep(4)
    partition = ours.assignment.partitions.pop(ORDERS)
    assert ours.assignment.step() is None
    ours.assignment.partitions[ORDERS] = partition
    assert "seem to be truncated" in (ours.assignment.step() or "")


@pytest.mark.parametrize("topic", [ORDERS.topic, LOG.topic])
def test_a_topic_that_the_broker_does_not_describe_yet_is_waited_for(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    living, genuine, left = remembering(), FakeAdmin.topics, [topic] * 2
    ours = member(living)
    ours.hear()

    def topics(self: FakeAdmin, names: Iterable[str]) -> dict[str, TopicInfo]:
        found = genuine(self, names)
        if left:
            found.pop(left.pop())
        return found

    monkeypatch.setattr(FakeAdmin, "topics", topics)
    for _ in range(2):
        assert "describe the topics of orders-0" in (ours.assignment.step() or "")
        living.clock.sleep(1)
    ours.take_over()


@pytest.mark.parametrize(("kept_h", "wipes"), [(24, 1), (168, 0)])
def test_a_store_is_trusted_for_half_the_time_that_its_changelog_keeps_tombstones(
    kept_h: int, wipes: int
) -> None:
    living = remembering()
    ours = member(living)
    ours.take_over()
    ours.assignment.close(leaves=False)
    kept = {"delete.retention.ms": str(kept_h * 3_600_000)}
    log = living.cluster.logs[LOG.topic]
    living.cluster.logs[LOG.topic] = replace(log, settings={**log.settings, **kept})
    living.clock.sleep(13 * 3600)
    member(living).take_over()
    assert living.faults.passed["store.wipe"] == wipes


def test_a_changelog_that_keeps_tombstones_too_short_is_refused() -> None:
    living = remembering()
    log = living.cluster.logs[LOG.topic]
    living.cluster.logs[LOG.topic] = replace(
        log, settings={**log.settings, "delete.retention.ms": "0"}
    )
    ours = member(living)
    ours.hear()
    with ending(ExitCode.CONTRADICTION, r"set its delete\.retention\.ms to 604800000"):
        ours.assignment.step()


@pytest.mark.parametrize("faults", [[], [late()]], ids=["answered", "not answered"])
def test_a_contradiction_that_another_owner_made_meanwhile_is_none(
    faults: list[KafkaException],
) -> None:
    living = remembering(OneByOne(), offset=2)
    living.send(*"abcde")
    living.clients().cluster.delete_before({ORDERS: 3})
    ours = member(living)
    ours.hear()
    ours.assignment.step()
    commit(living, 4)
    living.faults.at["committed"] = iter(faults)
    ours.take_over()
    assert ours.assignment.running[ORDERS].committed_offset == 4
    assert ours.offsets() == [4]
