"""A redrive where its letters are decided: each once, in one transaction with its mark."""

from dataclasses import replace

import pytest

from ringfence_client.headers import DUPLICATE_ID, DeadLetter, Headers
from ringfence_service.dedup.address import AddressContext
from ringfence_service.dedup.checks import Checks
from ringfence_service.dedup.dead_letter import Mode, RedrivenRecord
from ringfence_service.dedup.output import OutputTopic
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.transaction import TransactionAbortedError
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ForgetId,
    IdAnswer,
    IdQuery,
    IdsAnswer,
    IdsQuery,
)
from ringfence_service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DeleteCheckpoints,
    PartitionCheckpoint,
)
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state import cache as cache_module
from ringfence_state.model import Claim, PartitionId
from tests.fakes.group import Committed
from tests.support.helpers import answer, answered
from tests.support.living import GROUP, ORDERS, Living, gone, in_group, refused, turns
from tests.unit.service.dead_letters.redriving import (
    DLQ,
    NAME,
    command,
    job,
    letters,
    redriven,
    views,
    with_dead_letters,
    write,
)


@pytest.fixture(params=["whole", "compact"], autouse=True)
def _ring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of a ring."""
    if request.param == "compact":
        monkeypatch.setattr(cache_module, "WHOLE_IDS_MAX", -1)


def marks(loop: Loop) -> tuple[PartitionCheckpoint, ...]:
    found = answered(CheckpointsAnswer, CheckpointsQuery(NAME), loop)
    return found.marks


def is_known(loop: Loop, identifier: str) -> bool:
    found = answered(IdAnswer, IdQuery("orders", identifier.encode()), loop)
    return found.known


def test_through_decides_again_and_a_duplicate_is_a_dead_letter_once_more() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("through"))
    answer_ = redriven(loop, command("through", letters(living.cluster)))
    assert answer_.result == "done"
    assert answer_.mark[4:] == (letters(living.cluster)[1].at, 0, 2, 0, 0)
    assert living.values("orders.unique") == ["a", "b"]
    assert living.values(DLQ) == ["a", "b", "a", "b"]
    first, second = views(living.cluster)[0], views(living.cluster)[2]
    assert (first.redrives, second.redrives) == (0, 1)
    assert second.source == first.source
    assert second.headers == first.headers
    again = letters(living.cluster)[2:]
    redriven(loop, command("through", again))
    assert [view.redrives for view in views(living.cluster)] == [0, 0, 1, 1, 2, 2]


def test_through_accepts_what_is_not_remembered_any_more() -> None:
    living, loop = with_dead_letters("a", "b")
    answer(ForgetId("orders", b"a"), loop)
    write(living, job("through"))
    assert redriven(loop, command("through", letters(living.cluster))).mark[5:7] == (1, 1)
    assert living.values("orders.unique") == ["a", "b", "a"]
    assert is_known(loop, "a")


def test_through_accepts_a_record_without_an_id_as_soon_as_its_route_passes_such_records() -> None:
    living = Living()
    loop = living.running()
    write(living, job("through"))
    letter = RedrivenRecord(0, "orders", 0, 0, 1, None, b"no id", (), 0)
    assert redriven(loop, command("through", (letter,))).mark[5:7] == (1, 0)
    assert living.values("orders.unique") == ["no id"]


def test_forget_lets_each_through_once_and_remembers_it_again() -> None:
    living, loop = with_dead_letters("a", "b", "c")
    write(living, job("forget"))
    sent = letters(living.cluster)
    assert redriven(loop, command("forget", sent)).mark[5:] == (3, 0, 0, 0)
    assert living.values("orders.unique") == ["a", "b", "c", "a", "b", "c"]
    living.send("a", "b", "c")
    turns(loop, 3)
    assert living.values("orders.unique") == ["a", "b", "c", "a", "b", "c"]
    original = views(living.cluster)[-1].original
    assert original == "orders-0@5", "the letter that was let through is the original now"


def test_a_letter_that_was_let_through_is_a_duplicate_of_itself_the_next_time() -> None:
    living, loop = with_dead_letters("a")
    for each in (job("forget"), job("through", id="2-x")):
        write(living, each)
    sent = letters(living.cluster)
    redriven(loop, command("forget", sent))
    redriven(loop, command("through", sent)._replace(redrive="2-x"))
    assert living.values("orders.unique") == ["a", "a"]
    first, again = views(living.cluster)
    assert again.source == first.source
    assert again.original == "orders-0@1", "which is where it came from itself"


def test_two_letters_of_one_id_are_both_let_through() -> None:
    living, loop = with_dead_letters("a")
    living.send("a")
    turns(loop, 2)
    write(living, job("forget"))
    assert redriven(loop, command("forget", letters(living.cluster))).mark[5] == 2
    assert living.values("orders.unique") == ["a", "a", "a"]
    page = answered(IdsAnswer, IdsQuery("orders", None, 10), loop)
    assert [(each.identifier, each.sighting.offset) for each in page.ids] == [(b"a", 2)]


def test_what_is_decided_again_is_counted_apart_from_what_was_consumed() -> None:
    living, loop = with_dead_letters("a", "b")
    answer(ForgetId("orders", b"a"), loop)
    write(living, job("through"))
    redriven(loop, command("through", letters(living.cluster)))
    living.cluster.wait(1)
    turns(loop, 1)
    told = living.board.read()
    first_time = (told.counts.records_accepted, told.counts.duplicates, told.counts.refused)
    assert (told.counts.records_consumed, first_time) == (4, (2, 2, 0))
    assert (told.counts.dead_letters, told.counts.redriven, told.counts.redriven_accepted) == (
        3,
        2,
        1,
    )


def test_an_id_that_was_let_through_is_forgotten_at_once_when_that_is_asked() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("forget"))
    redriven(loop, command("forget", letters(living.cluster)))
    answer(ForgetId("orders", b"a"), loop)
    assert not is_known(loop, "a")
    assert is_known(loop, "b")


def test_bypass_writes_to_the_output_and_keeps_the_id_as_it_was() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("bypass"))
    sent = letters(living.cluster)
    assert redriven(loop, command("bypass", sent)).mark[5:] == (2, 0, 0, 0)
    records = living.cluster.records("orders.unique")
    assert [record.value for record in records] == [b"a", b"b", b"a", b"b"]
    assert records[2].headers == [(DUPLICATE_ID, b"a")]
    assert records[2].timestamp_ms == sent[0].timestamp_ms
    living.send("a")
    turns(loop, 2)
    assert views(living.cluster)[-1].original == "orders-0@0"


@pytest.mark.parametrize("mode", ["through", "forget", "bypass"])
def test_what_is_asked_again_is_done_already(mode: Mode) -> None:
    living, loop = with_dead_letters("a", "b", "c")
    write(living, job(mode))
    sent = letters(living.cluster)
    first = redriven(loop, command(mode, sent[:2]))
    assert redriven(loop, command(mode, sent[:2])) == first
    last = redriven(loop, command(mode, sent))
    assert sum(last.mark[5:]) == 3
    assert len(living.values("orders.unique")) + len(living.values(DLQ)) == 3 + 3 + 3


def test_a_new_owner_knows_what_the_one_before_has_decided() -> None:
    living, loop = with_dead_letters("a", "b", "c")
    write(living, job("bypass"))
    sent = letters(living.cluster)
    redriven(loop, command("bypass", sent[:2]))
    loop.close()
    later = living.running()
    assert redriven(later, command("bypass", sent)).mark[5] == 3
    assert living.values("orders.unique") == ["a", "b", "c", "a", "b", "c"]
    assert sum(
        later.assignment.running[PartitionId("orders", 0)].addresses == {"orders"} for _ in "1"
    )


def test_nothing_is_decided_for_a_redrive_that_has_ended() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("bypass"))
    sent = letters(living.cluster)
    redriven(loop, command("bypass", sent[:1]))
    write(living, job("bypass", state="cancelled"))
    assert redriven(loop, command("bypass", sent)).result == "ended"
    removed = answered(ChangeAnswer, DeleteCheckpoints(NAME), loop)
    assert removed.ids == 1
    assert marks(loop) == ()
    assert redriven(loop, command("bypass", sent)).result == "ended", "a late one finds the end"
    assert living.values("orders.unique") == ["a", "b", "a"]


def test_a_partition_whose_state_is_cleared_decides_no_letter_again() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("through"))
    sent = letters(living.cluster)
    answer(ForgetId("orders", b"a"), loop)
    redriven(loop, command("through", sent))
    loop.close()
    service = replace(living.config.service, on_reset_offset="clear_state")
    living.config = replace(living.config, service=service)
    living.cluster.group(GROUP).store(ORDERS, Committed(4, ""))
    cleared = living.running()
    assert not is_known(cleared, "b")
    assert redriven(cleared, command("through", sent)).mark[5:7] == (1, 1)
    assert living.values("orders.unique") == ["a", "b", "a"]
    write(living, job("through", state="cancelled"))
    turns(cleared, 2)
    removed = answered(ChangeAnswer, DeleteCheckpoints(NAME), cleared)
    assert removed.ids == 1


def test_the_marks_of_a_redrive_that_runs_stay() -> None:
    living, loop = with_dead_letters("a")
    write(living, job("bypass"))
    redriven(loop, command("bypass", letters(living.cluster)))
    with pytest.raises(NotPossible, match="is running"):
        answer(DeleteCheckpoints(NAME), loop)
    assert len(marks(loop)) == 1


def test_a_redrive_that_is_not_known_yet_is_asked_for_again() -> None:
    living, loop = with_dead_letters("a")
    with pytest.raises(Unavailable, match="not known here"):
        redriven(loop, command("bypass", letters(living.cluster)))


def test_an_owner_that_is_behind_on_the_config_topic_does_not_guess() -> None:
    living, loop = with_dead_letters("a")
    write(living, job("bypass"))
    with pytest.raises(Unavailable, match="to its end"):
        answer(command("bypass", letters(living.cluster)), loop)


def test_who_does_not_own_the_partition_says_so() -> None:
    living, loop = with_dead_letters("a")
    write(living, job("bypass"))
    with pytest.raises(NotPossible, match="orders-7"):
        redriven(loop, command("bypass", letters(living.cluster), PartitionId("orders", 7)))


def test_letters_that_are_given_up_are_counted_and_passed_over() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("bypass"))
    sent = letters(living.cluster)
    given_up = command("bypass", sent[:1])._replace(given_up=True)
    assert redriven(loop, given_up).mark[5:] == (0, 0, 0, 1)
    assert redriven(loop, command("bypass", sent)).mark[5:] == (1, 0, 0, 1)
    assert living.values("orders.unique") == ["a", "b", "b"]


def test_a_cleared_state_keeps_what_tells_of_redrives() -> None:
    living, loop = with_dead_letters("a")
    write(living, job("bypass"))
    redriven(loop, command("bypass", letters(living.cluster)))
    held = {
        key[:1] for key, _ in loop.assignment.running[PartitionId("orders", 0)].kept_store.scan(b"")
    }
    assert b"j" in held


WINDOW = {"#": {"strategy": "window"}}
SEQUENCE = {"#": {"strategy": "sequence"}}


@pytest.mark.parametrize("settings", [WINDOW, {"#": {"persist_id_cache": False}}])
def test_forget_works_however_an_address_remembers_ids(
    settings: dict[str, dict[str, object]],
) -> None:
    living, loop = with_dead_letters("a", "b", addresses=settings)
    write(living, job("forget"))
    assert redriven(loop, command("forget", letters(living.cluster))).mark[5] == 2
    living.send("a")
    turns(loop, 2)
    assert living.values("orders.unique") == ["a", "b", "a", "b"]
    assert views(living.cluster)[-1].original == "orders-0@2"


def numbered(living: Living, *numbers: int) -> None:
    for number in numbers:
        living.write(b"%d" % number, ("_PUBLISHER", b"P"), ("_SEQ", b"%d" % number))


def test_a_number_is_not_taken_back_when_an_old_one_is_let_through() -> None:
    living = Living(addresses=SEQUENCE)
    numbered(living, 1, 2, 3, 1, 2)
    loop = living.running()
    turns(loop, 3)
    write(living, job("forget"))
    assert redriven(loop, command("forget", letters(living.cluster))).mark[5] == 2
    assert living.values("orders.unique") == ["1", "2", "3", "1", "2"]
    assert len(living.cluster.records("g.acks")) == 2, "its publisher is acknowledged once more"
    numbered(living, 3, 4)
    turns(loop, 2)
    assert living.values("orders.unique") == ["1", "2", "3", "1", "2", "4"]


def test_a_group_is_judged_as_one_again_and_forgiven_as_one() -> None:
    living = Living()
    living.send("x", "y")
    for name, position in (("x", 1), ("y", 2)):
        headers = (*in_group("g", position, 2), (DUPLICATE_ID, name.encode()))
        living.write(name.encode(), *headers)
    loop = living.running()
    turns(loop, 3)
    assert living.reasons(DLQ) == ["duplicate-in-transaction"] * 2
    write(living, job("forget"))
    done = redriven(loop, command("forget", letters(living.cluster)))
    assert done.mark[5:] == (1, 0, 1, 0), "the first waited, the second completed the group"
    assert living.values("orders.unique") == ["x", "y", "x", "y"]


def test_the_redrive_count_of_a_repeated_duplicate_is_text_in_the_new_letter() -> None:
    living, loop = with_dead_letters("a")
    write(living, job("through"))
    redriven(loop, command("through", letters(living.cluster)))
    headers = living.cluster.records(DLQ)[-1].headers or []
    assert headers[-1] == (DeadLetter.REDRIVES, b"1")


@pytest.mark.row(33)
def test_letters_of_which_one_fails_are_refused_and_that_one_can_be_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    living, loop = with_dead_letters("a", "poison", "b")
    write(living, job("bypass"))
    sent = letters(living.cluster)
    genuine = Checks.target

    def target(
        checks: Checks, record: RedrivenRecord, headers: Headers, place: AddressContext
    ) -> OutputTopic:
        if record.value() == b"poison":
            raise KeyError("nobody foresaw this")
        return genuine(checks, record, headers, place)

    monkeypatch.setattr(Checks, "target", target)
    whole = redriven(loop, command("bypass", sent))
    assert (whole.result, whole.cause) == ("refused", "KeyError: 'nobody foresaw this'")
    assert redriven(loop, command("bypass", sent[:1])).result == "done"
    assert redriven(loop, command("bypass", sent[1:2])).result == "refused"
    given_up = command("bypass", sent[1:2])._replace(given_up=True)
    assert redriven(loop, given_up).mark[5:] == (1, 0, 0, 1)
    assert redriven(loop, command("bypass", sent[2:])).mark[5:] == (2, 0, 0, 1)
    assert living.values("orders.unique") == ["a", "poison", "b", "a", "b"]
    living.send("c")
    turns(loop, 3)
    assert living.values("orders.unique")[-1] == "c"


def test_what_passes_leaves_all_letters_undecided_and_the_next_time_each_is_decided_once() -> None:
    living, loop = with_dead_letters("a", "b")
    write(living, job("bypass"))
    asked = command("bypass", letters(living.cluster))
    living.faults.at["ends"] = iter([gone()])
    with pytest.raises(Unavailable, match="The broker answered _TRANSPORT"):
        redriven(loop, asked)
    living.faults.at["commit_transaction"] = iter([refused()])
    with pytest.raises(TransactionAbortedError):
        redriven(loop, asked)
    assert redriven(loop, asked).mark[5:] == (2, 0, 0, 0)
    assert living.values("orders.unique") == ["a", "b", "a", "b"]


@pytest.mark.row(38)
def test_letters_that_need_a_schema_wait_for_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    living, loop = with_dead_letters("a")
    write(living, job("through"))
    judged = Checks.claim

    def away(*_: object) -> Claim:
        raise RegistryUnavailableError("http://registry", "does not answer")

    monkeypatch.setattr(Checks, "claim", away)
    asked = command("through", letters(living.cluster))
    with pytest.raises(Unavailable, match="It needs the schema registry at http://registry"):
        redriven(loop, asked)
    monkeypatch.setattr(Checks, "claim", judged)
    assert redriven(loop, asked).result == "done"
