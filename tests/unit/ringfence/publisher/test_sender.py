"""The sender: logging on, sending in order, and stopping where going on would lose or double."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence_client.publisher.errors import AwayError, NameInUseError, PublishGapError, StoreError
from ringfence_client.publisher.sender import PublisherState
from tests.fakes.judge import ROOM, Judge, Sent
from tests.unit.ringfence.life import ACK_WAIT_S, OPEN, Clock, KilledError, Life


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture(autouse=True)
def _no_life_is_left() -> Iterator[None]:
    yield
    for each in list(OPEN):
        each.end()


@pytest.fixture
def life(judge: Judge, tmp_path: Path) -> Life:
    return Life(judge, tmp_path / "a", Clock())


def values(judge: Judge) -> list[bytes | None]:
    return [sent.value for sent in judge.accepted]


def test_what_is_published_is_sent_in_order_and_dropped_when_acknowledged(
    judge: Judge, life: Life
) -> None:
    published = [b"%d" % number for number in range(30)]
    life.publish(*published)
    life.run(10)
    assert values(judge) == published
    assert [sent.number for sent in judge.log] == list(range(1, 31))
    assert life.store.pending == 0
    assert life.sender.state is PublisherState.SENDING


def test_a_service_that_is_away_is_waited_for_with_growing_patience(
    judge: Judge, life: Life
) -> None:
    judge.up = False
    life.publish(b"a")
    waits = []
    for _ in range(9):
        life.sender.step()
        waits.append(life.sender.step())
        life.clock.now_s += waits[-1]
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15, 15])
    assert life.sender.state is PublisherState.WAITING
    assert str(life.sender.last_error) == "the service is away"
    assert len(life.told) == 1
    judge.up = True
    life.clock.now_s += 15
    life.run()
    assert values(judge) == [b"a"]
    assert life.sender.last_error is None


def test_a_failed_delivery_ends_the_connection_and_all_of_it_is_sent_again(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a", b"b")
    life.run()
    life.publish(b"c", b"d")
    life.connections[-1].fails = True
    life.run()
    judge.land(1, 9)  # a part of what was under way arrives after the new session began
    life.run()
    assert values(judge) == [b"a", b"b", b"c", b"d"]
    assert [sent.epoch for sent in judge.accepted] == [1, 1, 2, 2]


def test_what_an_older_life_had_under_way_cannot_overtake_in_any_later_one(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a", b"b", b"c")
    life.steps_left = 5  # connect, open twice, and the first two of the three on their way
    with pytest.raises(KilledError):
        life.run()
    second = Life(judge, life.kill(), life.clock)
    second.steps_left = 3  # a new session, and nothing sent
    with pytest.raises(KilledError):
        second.run()
    judge.land(1, 9)
    judge.judge(9)
    assert judge.accepted == []
    third = Life(judge, second.kill(), life.clock)
    third.run()
    assert values(judge) == [b"a", b"b", b"c"]


def test_case_58_a_repeated_number_is_acknowledged_with_the_last_one(
    judge: Judge, life: Life
) -> None:
    judge.last = 9
    life.publish(b"10", b"11")
    life.run()
    judge.log += [Sent(11, 1, b"again"), Sent(9, 1, b"older")]
    life.run()
    assert judge.acks[-1] == 11
    life.publish(b"12")
    life.run()
    assert values(judge) == [b"10", b"11", b"12"]
    assert [sent.number for sent in judge.accepted] == [10, 11, 12]
    assert (life.store.pending, life.sender.state) == (0, PublisherState.SENDING)


def test_case_59_a_server_behind_the_store_is_a_gap_and_stops_the_publisher(
    judge: Judge, life: Life
) -> None:
    life.publish(*[b"v"] * 50)
    life.run(20)
    judge.last = 40
    again = Life(judge, life.kill(), life.clock)
    again.publish(b"new")
    again.run()
    assert again.sender.state is PublisherState.STOPPED
    assert isinstance(again.sender.last_error, PublishGapError)
    assert again.store.pending == 1
    willing = Life(judge, again.kill(), life.clock, gap_allowed=True)
    willing.run()
    assert judge.accepted[-1].value == b"new"
    assert willing.store.pending == 0


def test_case_59_a_server_ahead_of_the_store_empties_it_and_it_continues_above(
    judge: Judge, life: Life
) -> None:
    judge.loses_acks = True
    life.publish(*[b"%d" % number for number in range(1, 61)])
    judge.tells_sessions = False
    life.run(20)
    assert (life.store.pending, judge.last) == (60, 60)
    judge.loses_acks = False
    again = Life(judge, life.kill(), life.clock)
    again.publish(b"61")
    again.run()
    assert values(judge) == [b"%d" % number for number in range(1, 62)]
    assert again.store.pending == 0


def test_numbers_that_this_store_never_sent_are_reported_at_logon_and_skipped(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    life.run()
    judge.last = 60
    again = Life(judge, life.kill(), life.clock)
    again.publish(b"b")
    again.sender.step()
    assert "60 was accepted, and 1 is the highest" in str(again.told[0])
    again.run()
    assert [sent.number for sent in judge.accepted] == [1, 61]
    assert (again.sender.state, again.sender.last_error) == (PublisherState.SENDING, None)


def test_a_lost_acknowledgement_is_asked_for_after_a_while(judge: Judge, life: Life) -> None:
    life.publish(b"a")
    judge.loses_acks = True
    life.run()
    assert life.store.pending == 1
    life.run(int(ACK_WAIT_S) + 1)
    assert (life.store.pending, judge.epoch) == (0, 1)


def test_a_backlog_at_the_service_is_waited_for_and_reported(judge: Judge, life: Life) -> None:
    life.publish(b"a")
    for _ in range(20):  # the service decides nothing meanwhile
        life.clock.now_s += 1
        life.sender.step()
    assert "No acknowledgement for 5 s" in str(life.sender.last_error)
    assert (life.sender.state, judge.epoch) == (PublisherState.SENDING, 1)
    life.run()
    assert (values(judge), life.store.pending, life.sender.last_error) == ([b"a"], 0, None)


def test_a_service_that_goes_away_later_is_reported_and_the_connection_stays_open(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    life.clock.now_s += 1
    life.sender.step()
    judge.up = False
    life.run(8)
    assert isinstance(life.sender.last_error, AwayError)
    assert life.sender.state is PublisherState.SENDING
    judge.up = True
    life.run()
    assert (values(judge), len(life.connections)) == ([b"a"], 1)


def test_a_session_whose_answer_was_lost_is_not_taken_for_another_publishers(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    life.run()
    judge.loses_answers = True
    life.connections[-1].fails = True
    life.publish(b"b")
    life.run()
    assert (life.sender.state, judge.epoch > 1) == (PublisherState.WAITING, True)
    judge.loses_answers = False
    life.run(20)
    assert (values(judge), life.sender.state) == ([b"a", b"b"], PublisherState.SENDING)


def rival(life: Life) -> Life:
    """Another publisher of the same name and user, with a newer store."""
    return Life(life.judge, life.path.with_name("rival"), life.clock, now_ms=1)


def test_of_two_publishers_with_one_name_the_older_stops_when_it_hears_of_numbers_not_its_own(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    life.run()
    younger = rival(life)
    younger.publish(b"b")
    younger.run()
    life.run()
    assert life.sender.state is PublisherState.STOPPED
    assert isinstance(life.sender.last_error, NameInUseError)
    assert (life.connections[-1].is_closed, life.sender.step() > 0) == (True, True), "it may rest"
    younger.publish(b"c")
    younger.run()
    assert values(judge) == [b"a", b"b", b"c"]


def test_of_two_publishers_with_one_name_the_older_stops_when_its_own_are_not_acknowledged(
    judge: Judge, life: Life
) -> None:
    life.run()
    younger = rival(life)
    younger.run()
    life.publish(b"a")
    life.run(int(ACK_WAIT_S) + 4)
    assert isinstance(life.sender.last_error, NameInUseError)
    assert (life.store.pending, judge.epoch) == (1, 2)


def test_of_two_publishers_with_one_name_the_older_takes_nothing_back_after_a_failure(
    judge: Judge, life: Life
) -> None:
    life.run()
    younger = rival(life)
    younger.run()
    life.connections[-1].fails = True
    life.run()
    assert isinstance(life.sender.last_error, NameInUseError)
    assert judge.epoch == 2


def test_a_name_that_another_user_holds_stops_the_publisher(judge: Judge, life: Life) -> None:
    judge.session("other")
    life.publish(b"a")
    life.run()
    assert isinstance(life.sender.last_error, NameInUseError)
    assert (life.sender.state, life.store.pending) == (PublisherState.STOPPED, 1)
    assert judge.log == []


def test_a_partition_that_is_not_the_stores_stops_the_publisher(judge: Judge, life: Life) -> None:
    life.store.keep_partition(3)
    life.run()
    assert isinstance(life.sender.last_error, StoreError)
    assert judge.epoch == 0


def test_an_idle_sender_may_rest_and_a_busy_one_may_not(judge: Judge, life: Life) -> None:
    assert life.sender.step() > 0
    life.publish(b"a")
    assert life.sender.step() == 0
    judge.judge(1)
    life.sender.step()
    assert life.sender.step() > 0


def test_acknowledgements_are_waited_for_only_where_nothing_else_can_be_sent(
    judge: Judge, life: Life
) -> None:
    life.sender.step()
    life.publish(b"a")
    for _ in range(2):
        life.sender.step()
    life.publish(*[b"v"] * (ROOM + 9))
    life.sender.step()
    assert len(judge.log) < 1 + ROOM, "the rest finds no room"
    assert life.connections[0].waits_s == [0, 0, 0.02, 0.02]


def test_a_logon_that_fails_closes_its_connection(judge: Judge, life: Life) -> None:
    judge.up = False
    life.sender.step()
    assert [connection.is_closed for connection in life.connections] == [True]
    life.clock.now_s += 1
    life.steps_left = 1
    with pytest.raises(KilledError):
        life.sender.step()
    assert life.sender.state is PublisherState.LOGGING_ON


def test_acknowledgements_are_missed_from_the_last_progress_on(judge: Judge, life: Life) -> None:
    life.clock.now_s = 100.0
    life.publish(b"a", b"b", b"c")
    life.sender.step()
    for accepted in (1, 1, 1):
        life.clock.now_s += ACK_WAIT_S - 1
        judge.judge(accepted)
        life.sender.step()
    for _ in range(3):
        life.clock.now_s += 10 * ACK_WAIT_S
        life.sender.step()
    life.publish(b"d")
    life.sender.step()
    assert (life.told, judge.look_ups) == ([], 0)


def test_a_repeated_acknowledgement_is_no_progress(judge: Judge, life: Life) -> None:
    life.publish(b"a", b"b")
    life.sender.step()
    judge.judge(1)
    for _ in range(3):
        life.sender.step()
        life.clock.now_s += ACK_WAIT_S - 1
        judge.acks.append(1)
    assert "No acknowledgement for 5 s" in str(life.sender.last_error)


def test_the_service_is_asked_once_in_each_wait_for_an_acknowledgement(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    for _ in range(1 + 2 * int(ACK_WAIT_S)):
        life.sender.step()
        life.clock.now_s += 1
    assert judge.look_ups == 2


def test_an_acknowledgement_makes_the_next_wait_short_again(judge: Judge, life: Life) -> None:
    for _ in range(2):
        judge.up = False
        if life.connections:
            life.connections[-1].fails = True
        life.publish(b"a")
        waits = []
        for _ in range(3):
            life.sender.step()
            waits.append(life.sender.step())
            life.clock.now_s += waits[-1]
        assert waits == pytest.approx([0.2, 0.4, 0.8])
        judge.up = True
        life.run()
        assert life.store.pending == 0


def test_a_number_that_was_never_sent_stops_the_publisher_at_its_next_logon(
    judge: Judge, life: Life
) -> None:
    life.publish(b"a")
    life.run()
    judge.last = 9
    life.connections[-1].fails = True
    life.run()
    assert life.sender.state is PublisherState.STOPPED
    assert isinstance(life.sender.last_error, NameInUseError)


@pytest.mark.parametrize("sent", [0, 3])
def test_a_store_that_is_new_or_level_with_the_service_is_not_doubted(
    sent: int, judge: Judge, life: Life
) -> None:
    life.publish(*[b"v"] * sent)
    life.run()
    judge.last = judge.last or 9
    again = Life(judge, life.kill(), life.clock)
    again.run()
    assert (again.told, again.sender.state) == ([], PublisherState.SENDING)
