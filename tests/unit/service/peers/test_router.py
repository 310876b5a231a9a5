"""The desk of many instances: who is asked, what becomes of the answers, how long it takes."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import httpx2
import pytest

from ringfence_service.dedup.record import KnownId
from ringfence_service.metadata.instances import Registration
from ringfence_service.peers import client as client_module
from ringfence_service.peers.client import LEFT_ALONE_S
from ringfence_service.peers.protocol import PeerFailure
from ringfence_service.queries.errors import NotPossible, NotRestored, TimedOut, Unavailable
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdLocation,
    IdQuery,
    ImportAnswer,
    ImportIds,
)
from ringfence_service.queries.publishers import (
    PublisherAnswer,
    PublisherProgress,
    PublisherQuery,
    SetSequence,
)
from ringfence_service.queries.registry import Answer, Query
from tests.api.fake_service import Clock
from tests.unit.service.peers.scene import (
    Crew,
    announced,
    ask,
    desk_of,
    peer_server,
    serving,
    status_of,
)

SEEN = IdLocation("orders", 3, 42, 1_700_000_000_000, 9)
QUESTION = IdQuery("a", b"x")
IMPORT = ImportIds("a", "orders", 3, (KnownId(b"x"), KnownId(b"y")))


def knows_nothing(_query: Query) -> Answer:
    return IdAnswer(known=False, sightings=())


def knows(_query: Query) -> Answer:
    return IdAnswer(known=True, sightings=(SEEN,))


def changes_two(query: Query) -> Answer:
    return ImportAnswer(2, new=1) if isinstance(query, ImportIds) else ChangeAnswer(2)


def refuses(_query: Query) -> Answer:
    raise NotPossible("It is no partition that this instance decides.")


def restores(_query: Query) -> Answer:
    raise NotRestored("Its partitions are not restored yet.")


def fails(_query: Query) -> Answer:
    raise ValueError("an error of ours")


@pytest.fixture
def world() -> Iterator[ExitStack]:
    with ExitStack() as world:
        yield world


def dead() -> Registration:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return announced("9", listener.getsockname()[1])


def connections(listener: socket.socket) -> int:
    """How many there were since this was asked last."""
    listener.settimeout(0)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def peer_of(world: ExitStack, *owned: int, says: Callable[[Query], Answer] = knows) -> Registration:
    """Instance 1, which owns these and says this."""
    return world.enter_context(serving("1", peer_server(Crew(status_of("1", *owned), says))))


def test_who_owns_every_partition_asks_nobody(world: ExitStack) -> None:
    other = Crew(status_of("1"), knows)
    peer = world.enter_context(serving("1", peer_server(other)))
    desk = desk_of(Crew(status_of("0", 0, 1, 2, 3), knows_nothing), [peer])
    assert ask(desk, QUESTION) == IdAnswer(known=False, sightings=(), complete=True)
    assert other.asked == []


def test_what_another_instance_knows_is_returned_in_a_complete_answer(world: ExitStack) -> None:
    others = [Crew(status_of("1", 2), knows_nothing), Crew(status_of("2", 3), knows)]
    known = [
        world.enter_context(serving(each.status.instance, peer_server(each))) for each in others
    ]
    desk = desk_of(Crew(status_of("0", 0, 1), knows_nothing), [announced("0", 1), *known])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=True)
    assert [each.asked for each in others] == [[QUESTION], [QUESTION]], "each is asked once"


def test_an_answer_without_one_that_is_dead_is_a_part(world: ExitStack) -> None:
    desk = desk_of(Crew(status_of("0", 0, 1), knows_nothing), [peer_of(world, 2), dead()])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=False)


def test_one_that_hangs_costs_a_part_of_the_time_and_then_nothing(world: ExitStack) -> None:
    peer = peer_of(world, 2)
    listener = world.enter_context(socket.create_server(("127.0.0.1", 0)))
    silent, clock = announced("8", listener.getsockname()[1]), Clock()
    desk = desk_of(Crew(status_of("0", 0, 1), knows_nothing), [peer, silent], clock)
    for asked in (1, 0):
        assert ask(desk, QUESTION, 5.0) == IdAnswer(known=True, sightings=(SEEN,), complete=False)
        assert connections(listener) == asked
    clock.now_s += LEFT_ALONE_S + 1
    ask(desk, QUESTION, 5.0)
    assert connections(listener) == 1, "after some seconds it is asked again"


def test_one_that_is_back_is_asked_again_after_some_seconds(world: ExitStack) -> None:
    clock, is_up = Clock(), threading.Event()
    answer = peer_server(Crew(status_of("1", 2, 3), knows))
    peer = world.enter_context(serving("1", lambda text: answer(text) if is_up.is_set() else 503))
    desk = desk_of(Crew(status_of("0", 0, 1), knows_nothing), [peer], clock)
    assert not ask(desk, QUESTION).complete
    is_up.set()
    assert not ask(desk, QUESTION).complete, "it is left alone"
    clock.now_s += LEFT_ALONE_S + 1
    assert ask(desk, QUESTION).complete


def test_one_that_restores_makes_the_answer_a_part(world: ExitStack) -> None:
    desk = desk_of(Crew(status_of("0", 0, 1), knows), [peer_of(world, 2, 3, says=restores)])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=False)


def test_who_restores_itself_tells_what_the_others_know(world: ExitStack) -> None:
    desk = desk_of(Crew(status_of("0", 0, 1), restores), [peer_of(world, 2, 3)])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=False)


def test_if_nobody_answers_the_local_reason_is_reported() -> None:
    with pytest.raises(NotRestored):
        ask(desk_of(Crew(status_of("0", 0, 1), restores), [dead()]), QUESTION)


def test_a_refusal_that_lasts_is_the_answer_to_a_question(world: ExitStack) -> None:
    peer = peer_of(world, 2, 3, says=refuses)
    with pytest.raises(NotPossible):
        ask(desk_of(Crew(status_of("0", 0, 1), knows), [peer]), QUESTION)


def test_an_internal_error_is_not_taken_for_an_answer() -> None:
    with pytest.raises(ValueError, match="ours"):
        ask(desk_of(Crew(status_of("0", 0, 1), fails), []), QUESTION)


def test_one_whose_url_leads_elsewhere_is_not_believed_and_nothing_goes_round(
    world: ExitStack,
) -> None:
    own = Crew(status_of("0", 0, 1), knows)
    elsewhere = world.enter_context(serving("1", peer_server(own)))
    desk = desk_of(own, [elsewhere])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=False)
    assert own.asked == [QUESTION], "the question that came back was not for us"


@pytest.mark.parametrize("reply", [b"", b"{}", b'["1",null,[],4]', b"<html>", 403, 500])
def test_a_reply_that_nobody_understands_is_none(world: ExitStack, reply: bytes | int) -> None:
    peer = world.enter_context(serving("1", lambda _text: reply))
    desk = desk_of(Crew(status_of("0", 0, 1), knows), [peer])
    assert ask(desk, QUESTION) == IdAnswer(known=True, sightings=(SEEN,), complete=False)


def test_no_more_of_a_reply_is_read_than_fits_into_memory(
    world: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = peer_of(world, 2, 3)
    desk = desk_of(Crew(status_of("0", 0, 1), knows), [peer])
    assert ask(desk, QUESTION).complete
    monkeypatch.setattr(client_module, "_REPLY_BYTES_MAX", 10)
    assert not ask(desk, QUESTION).complete


def test_a_failure_is_reported_by_its_kind_without_the_text_of_the_error(
    world: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def illegal(*_: object, **__: object) -> None:
        raise httpx2.LocalProtocolError("Illegal header value b'Bearer geheim'")

    peer = peer_of(world, 2, 3)
    monkeypatch.setattr(httpx2.AsyncClient, "send", illegal)
    told = asyncio.run(desk_of(Crew(status_of("0", 0), knows), [peer]).instance_statuses(5.0))
    assert told[1].trouble == PeerFailure(
        "not-sent", "it cannot be reached: the request is invalid"
    )


# Changes.


def test_a_change_that_one_owner_makes_is_made_by_it(world: ExitStack) -> None:
    others = [Crew(status_of("1", 2), refuses), Crew(status_of("2", 3), changes_two)]
    known = [
        world.enter_context(serving(each.status.instance, peer_server(each))) for each in others
    ]
    assert ask(desk_of(Crew(status_of("0", 0, 1), refuses), known), IMPORT).ids == 2
    alone = Crew(status_of("0", 0, 1), changes_two)
    assert ask(desk_of(alone, known), IMPORT).ids == 2
    assert [len(each.asked) for each in others] == [1, 1], "who owns it asks nobody"


def test_ids_of_several_owners_are_imported_by_each(world: ExitStack) -> None:
    change = IMPORT._replace(ids=(KnownId(b"x"), KnownId(b"y"), KnownId(b"z"), KnownId(b"a")))
    peer = peer_of(world, 2, 3, says=changes_two)
    own = Crew(status_of("0", 0, 1), changes_two)
    assert ask(desk_of(own, [peer]), change) == ImportAnswer(4, new=2, complete=True)
    more = change._replace(ids=(*change.ids, KnownId(b"nobody's")))
    assert ask(desk_of(own, [peer]), more).ids == 4, "all have said what they decide"
    with pytest.raises(Unavailable, match="on a part of the partitions; try again"):
        ask(desk_of(own, [peer, dead()]), more)


def test_what_no_owner_wants_to_do_is_refused(world: ExitStack) -> None:
    peer = peer_of(world, 2, 3, says=refuses)
    with pytest.raises(NotPossible):
        ask(desk_of(Crew(status_of("0", 0, 1), refuses), [peer]), IMPORT)


def test_an_instance_that_does_not_answer_and_may_be_the_owner_is_reported() -> None:
    with pytest.raises(Unavailable, match="Instance 9 does not answer: it cannot be reached"):
        ask(desk_of(Crew(status_of("0", 0, 1), refuses), [dead()]), IMPORT)


@pytest.mark.parametrize("change", [ClearAddress("a"), ForgetId("a", b"x")])
def test_a_change_on_all_partitions_is_counted_together(world: ExitStack, change: Query) -> None:
    other = Crew(status_of("1", 2, 3), changes_two)
    peer = world.enter_context(serving("1", peer_server(other)))
    desk = desk_of(Crew(status_of("0", 0, 1), changes_two), [peer])
    assert ask(desk, change) == ChangeAnswer(4, complete=True)
    assert other.asked == [change]


def test_a_change_on_all_partitions_is_not_begun_without_one_of_their_owners(
    world: ExitStack,
) -> None:
    own, other = Crew(status_of("0", 0, 1), changes_two), Crew(status_of("1", 2), changes_two)
    peer = world.enter_context(serving("1", peer_server(other)))
    with pytest.raises(Unavailable, match=r"nothing was changed.*Instance 9 does not answer"):
        ask(desk_of(own, [peer, dead()]), ClearAddress("a"))
    assert (own.asked, other.asked) == ([], [])


def test_a_change_that_an_owner_could_not_make_in_the_end_says_so(world: ExitStack) -> None:
    peer = peer_of(world, 2, 3, says=restores)
    with pytest.raises(Unavailable, match=r"on a part of the partitions; try again.*not restored"):
        ask(desk_of(Crew(status_of("0", 0, 1), changes_two), [peer]), ClearAddress("a"))


def test_a_number_is_changed_where_the_publisher_writes(world: ExitStack) -> None:
    places = {"1": PublisherProgress("a", "orders", 3, 7, None)}

    def crew(instance: str, *owned: int) -> Crew:
        def says(query: Query) -> Answer:
            if isinstance(query, SetSequence):
                if query.partition not in owned:
                    raise NotPossible("It is no partition that this instance decides.")
                changed = places[instance]._replace(number=query.number)
                if query.dry_run:
                    return PublisherAnswer("P", None, None, (changed,))
                places[instance] = changed
            mine = (places[instance],) if instance in places else ()
            return PublisherAnswer("P", None, None, mine)

        return Crew(status_of(instance, *owned), says)

    other = crew("1", 2, 3)
    peer = world.enter_context(serving("1", peer_server(other)))
    desk = desk_of(crew("0", 0, 1), [peer], settings={"#": {"strategy": "sequence"}})
    tried = ask(desk, SetSequence("P", "a", 98, dry_run=True))
    assert [place.number for place in tried.positions] == [98]
    assert places["1"].number == 7
    other.asked.clear()
    answer = ask(desk, SetSequence("P", "a", 99))
    assert [place.number for place in answer.positions] == [99]
    assert answer.complete
    assert [type(query) for query in other.asked] == [PublisherQuery, SetSequence, PublisherQuery]
    assert other.asked[1] == SetSequence("P", "a", 99, None, "orders", 3)


def test_an_instance_alone_changes_a_number_on_the_worker_where_the_publisher_writes() -> None:
    place = PublisherProgress("a", "orders", 3, 7, None)

    def says(query: Query) -> Answer:
        if isinstance(query, SetSequence):
            place_now = place._replace(number=query.number)
            return PublisherAnswer("P", None, None, (place_now,), complete=True)
        return PublisherAnswer("P", None, None, (place,), complete=True)

    alone = Crew(status_of("0", 0, 1, 2, 3), says)
    desk = desk_of(alone, [], settings={"#": {"strategy": "sequence"}})
    ask(desk, SetSequence("P", "a", 99))
    assert alone.asked[1] == SetSequence("P", "a", 99, None, "orders", 3)
    assert [type(query) for query in alone.asked] == [PublisherQuery, SetSequence, PublisherQuery]


def test_the_number_of_a_publisher_that_may_be_elsewhere_is_not_changed_here() -> None:
    def says(_query: Query) -> Answer:
        return PublisherAnswer("P", None, None, ())

    own = Crew(status_of("0", 0), says)
    desk = desk_of(own, [dead()], settings={"#": {"strategy": "sequence"}})
    with pytest.raises(Unavailable, match="Not every partition has an owner that answers"):
        ask(desk, SetSequence("P", "a", 99))
    assert SetSequence not in map(type, own.asked)


def test_own_processes_that_hang_end_the_question_at_its_deadline() -> None:
    started = threading.Event()

    class Hanging(Crew):
        async def _say(self, _query: Query) -> Answer:
            started.set()
            await asyncio.sleep(60)  # noqa: TID251 - it hangs
            raise AssertionError

    with pytest.raises(TimedOut):
        ask(desk_of(Hanging(status_of("0", 0), knows), []), QUESTION, 0.3)
    assert started.is_set()
