"""Redrives from the order to the end: real orders, coordinator and loop, all on one thread."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import TypeVar, cast

import pytest
from structlog.testing import capture_logs

from ringfence_service.config.model import RouteSettings
from ringfence_service.dead_letters import redrive_coordinator as coordinator_module
from ringfence_service.dead_letters import redrive_runner as errand_module
from ringfence_service.dead_letters.browser import DeadLetterBrowser
from ringfence_service.dead_letters.owners import DeadLetterOwners
from ringfence_service.dead_letters.redrive_coordinator import RedriveCoordinator
from ringfence_service.dead_letters.redrive_service import RedriveService
from ringfence_service.kafka.topics import config_topic
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob, forgetting
from ringfence_service.metadata.topic import MetadataReader
from ringfence_service.metadata.watcher import MetadataWatcher
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    RedriveProgress,
    RedriveRequest,
)
from ringfence_service.queries.errors import NotPossible, Unavailable
from ringfence_service.queries.inbox import QueryService
from ringfence_service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.schemas.errors import RegistryUnavailableError
from ringfence_state.model import PartitionId
from tests.fakes.partition import Record
from tests.support.helpers import answer, answered, some
from tests.support.living import GROUP, gone
from tests.support.statuses import changed
from tests.support.waiting import eventually
from tests.unit.service.dead_letters.redriving import DLQ, job, views, with_dead_letters, write

T = TypeVar("T")
END = 4
"""Of the dead letters: three, and the marker of their transaction."""


async def rounds(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 - none, others have their turn


async def at_once(work: Callable[[], T]) -> T:
    await rounds(1)
    return work()


class Site(QueryService):
    """An instance with three dead letters. Its loop answers, and it reads the metadata topic."""

    def __init__(self) -> None:
        self.living, self.loop = with_dead_letters("a", "b", "c")
        self.living.cluster.wait(1)
        self.loop.turn()
        self.config, self.status = self.living.config, self.living.board.read()
        self.is_away, self.reads = False, True
        self.asked: list[str] = []
        """Of which redrives."""
        clock, clients = self.living.clock, self.living.clients("api")
        self._follower = MetadataReader(clients, config_topic(GROUP), clock)
        self.redrives: Mapping[str, RedriveJob] | None = None
        """See `MetadataWatcher.redrives`."""
        made = (lambda: self.config, lambda: clients)
        metadata_watcher = cast("MetadataWatcher", self)
        self.coordinator = RedriveCoordinator(
            *made, self, lambda: self.status, metadata_watcher, clock
        )
        self.orders = RedriveService(
            *made, DeadLetterBrowser(*made, clock), self.coordinator, clock
        )
        self.events = asyncio.new_event_loop()
        self.work: asyncio.Task[None] | None = None
        self.logged: Sequence[Mapping[str, object]] = ()

    async def _answered(self, query: Query, timeout_s: float) -> Answer:
        assert isinstance(query, DecideDeadLetters | CheckpointsQuery | DeleteCheckpoints)
        self.asked.append(query.redrive)
        if self.is_away:
            raise Unavailable(f"nobody answers within {timeout_s} s")
        self.loop.turn()
        return answer(query, self.loop)

    def works(self, count: int = 60) -> None:
        for _ in range(count):
            if self.reads:
                self._follower.poll()
                self.redrives = dict(self._follower.settings.redrives.by_id)
            self.events.run_until_complete(rounds(1))

    def end(self) -> None:
        self.coordinator._stopping = True
        self.events.run_until_complete(some(self.work))

    def over(self, name: str) -> str:
        self.works()
        job = self.coordinator.jobs()[name]
        assert job.is_over
        return job.state

    def order(self, key: str | None = None, **changes: object) -> str:
        self.living.cluster.wait(0.5)
        order = RedriveRequest("bypass", DeadLetterFilter())._replace(**changes)  # type: ignore[arg-type]
        return self.orders.order(order, key).id

    @property
    def output(self) -> str:
        """Beyond what was there."""
        return "".join(self.living.values("orders.unique"))[3:]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for module in (coordinator_module, errand_module):
        monkeypatch.setattr(module, "run_in_daemon_thread", at_once)
    for module, name in ((coordinator_module, "_REFRESH_S"), (coordinator_module, "_PAUSE_S")):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(errand_module, "_PAUSES_S", (0,))
    site = Site()
    site.work = site.events.create_task(site.coordinator.work())
    with capture_logs() as site.logged:
        yield site
        site.end()
    site.events.close()


def places(*offsets: int, partition: int = 0) -> tuple[DeadLetterPosition, ...]:
    return tuple(DeadLetterPosition(DLQ, partition, offset) for offset in offsets)


def test_a_requested_redrive_is_decided_once_and_reported_until_its_end(site: Site) -> None:
    with pytest.raises(Unavailable, match="not been read yet"):
        site.orders.all()
    site.living.cluster.grow_topic(DLQ, 2)
    site.works()
    first = site.order(reason="why")
    view = some(site.orders.get(first))
    assert (view.id[:14], len(view.id)) == (f"{view.created_at_ms}-", 22)
    assert 0 <= site.living.cluster.now_ms - view.created_at_ms < 500
    assert (view.state, view.order.reason, view.records_total) == ("running", "why", END)
    assert site.coordinator.jobs()[first].spans == (DeadLetterRange(DLQ, 0, 0, END),)
    assert site.over(first) == "done"
    assert some(site.orders.get(first)).progress == RedriveProgress(3, 3, 3, 3)
    second = site.order(mode="through")
    assert site.over(second) == "done"
    assert some(site.orders.get(second)).progress == RedriveProgress(3, 3, 3, 0, 3)
    third = site.order(filter=DeadLetterFilter(reasons=("expired",)))
    site.over(third)
    assert some(site.orders.get(third)).progress == RedriveProgress(6)
    assert [each.id for each in site.orders.all()] == [third, second, first]
    assert site.orders.get("x") is site.orders.cancel("x") is None
    assert answered(CheckpointsAnswer, CheckpointsQuery(first), site.loop).marks == ()
    assert site.output == "abc"


def test_a_redrive_logs_its_begin_and_its_end_and_not_that_it_is_cleared(site: Site) -> None:
    site.works()
    name = site.order()
    assert site.over(name) == "done"
    told = [each for each in site.logged if each.get("redrive") == name]
    assert [each["event"] for each in told] == ["redrive_begins", "redrive_ends"]
    assert told[1]["state"] == "done"


def test_a_redrive_that_is_ordered_again_under_its_key_is_the_same_on_every_instance(
    site: Site,
) -> None:
    site.works()
    other = RedriveCoordinator(
        lambda: site.config,
        lambda: site.living.clients("other"),
        site,
        lambda: site.status,
        cast("MetadataWatcher", site),
        site.living.clock,
    )
    other.refresh()  # before the first was written: it knows of none
    first = site.order("k", actor="ada")
    orders = RedriveService(
        lambda: site.config,
        lambda: site.living.clients("other"),
        DeadLetterBrowser(
            lambda: site.config, lambda: site.living.clients("other"), site.living.clock
        ),
        other,
        site.living.clock,
    )
    again = orders.order(RedriveRequest("bypass", DeadLetterFilter(), actor="ada"), "k")
    assert again.id == first
    assert again.order == some(site.orders.get(first)).order
    assert {site.order("k", actor="ada"), site.order("k", actor="ada")} == {first}
    assert len({first, site.order("l", actor="ada"), site.order("k", actor="bob")}) == 3
    assert site.over(first) == "done"


def test_four_run_at_once_and_one_that_is_cancelled_or_taken_away_goes_no_further(
    site: Site,
) -> None:
    site.works()
    site.is_away = True
    names = [site.order() for _ in range(6)]
    site.works()
    assert set(site.asked) == set(names[:4])
    assert some(site.orders.get(names[1])).waiting_for == "nobody answers within 10.0 s"
    cancelled = some(site.orders.cancel(names[0]))
    assert cancelled.state == some(site.orders.get(names[0])).state == "cancelled"
    assert site.orders.cancel(names[0]) == site.orders.get(names[0])
    key = forgetting(names[1]).key
    site.living.cluster.write(config_topic(GROUP), 0, Record(key, None, None, 1))
    for number in range(15):
        write(site.living, job(id=f"9-{number}", spans=()))
    site.works()
    site.order()
    with pytest.raises(NotPossible, match="20 redrives run already"):
        site.order()
    site.is_away = False
    assert [site.over(name) for name in names[2:]] == ["done"] * 4
    assert site.over(names[0]) == "cancelled"
    assert site.orders.get(names[1]) is None
    site.works()
    assert site.output == "abc" * 5


def test_only_whose_turn_it_is_carries_out_redrives(site: Site) -> None:
    mine = site.status
    site.works()
    site.status = mine._replace(
        partitions=tuple(changed(each, phase="restoring") for each in mine.partitions)
    )
    name = site.order()
    site.works()
    assert site.asked == []
    site.status, site.is_away = mine, True
    site.works()
    site.status = mine._replace(partitions=())
    site.works()
    asked = len(site.asked)
    site.works()
    assert len(site.asked) == asked > 0
    site.status, site.is_away = mine, False
    site.over(name)
    site.living.cluster.create_topic("abc")
    more = RouteSettings(name="more", inputs=("abc",), scope="partition")
    site.config = replace(site.config, routes=(*site.config.routes, more))
    site.over(site.order())  # for five seconds nobody asks whose turn it is
    site.living.cluster.wait(5)
    site.order()
    site.works()
    assert site.output == "abcabc"


def test_a_failure_is_reported_and_the_redrive_goes_on_or_ends(site: Site) -> None:
    site.works()
    faults, first = site.living.faults.at, site.order()
    faults["names"] = iter([gone(), RuntimeError("a bug")])  # where its turn is looked for
    faults["topics"] = repeat(gone())
    said = set[str | None]()
    for _ in range(60):
        site.works(1)
        said.add(some(site.orders.get(first)).waiting_for)
    assert said == {None, "The broker answered _TRANSPORT; see its log and the topics."}
    faults["topics"] = iter([])
    assert site.over(first) == "done"
    second = site.order()
    faults["topics"] = iter([RuntimeError("a bug")])
    assert site.over(second) == "failed"
    failed = some(site.orders.get(second)).error
    assert failed == "An internal error: RuntimeError('a bug'); the log has more."
    third = site.order()
    faults["init_transactions"] = iter([gone()] * 3)  # where its end is written
    failed_before = [each["event"] for each in site.logged].count("redrive_failed")
    assert site.over(third) == "done"
    assert [each["event"] for each in site.logged].count("redrive_failed") == failed_before == 1
    faults["init_transactions"] = iter([gone()])
    with pytest.raises(Unavailable, match="The broker answered _TRANSPORT; ask again"):
        site.order()
    assert site.output == "abcabc"


def test_a_job_written_here_is_reported_until_it_or_a_newer_one_is_read(site: Site) -> None:
    def states() -> list[str | None]:
        site.works()
        jobs = site.coordinator.jobs()
        return [jobs[name].state if name in jobs else None for name in (first, second)]

    site.works()
    site.is_away = True
    first = site.order()
    site.works()
    site.reads = False
    second = site.order()
    site.orders.cancel(first)
    site.living.cluster.wait(4)
    assert states() == ["cancelled", "running"]
    site.living.cluster.wait(2)
    assert states() == ["running", None]
    site.reads = True
    assert states() == ["cancelled", "running"]
    later = site.coordinator.jobs()[second]._replace(updated_at_ms=2**45, state="failed")
    site.orders.cancel(second)
    write(site.living, later)
    assert states() == ["cancelled", "failed"]


def test_that_a_job_was_cleared_here_is_known_before_it_is_read(site: Site) -> None:
    write(site.living, job(state="done"))
    site.status = site.status._replace(partitions=())
    site.works()
    (name,) = site.coordinator.jobs()
    site.reads = False
    site.coordinator.write(name, lambda now: some(now)._replace(cleared=True))
    site.works()
    assert site.coordinator.jobs()[name].cleared


def test_a_redrive_that_is_cancelled_shows_how_far_it_is(site: Site) -> None:
    site.works()
    name, sent = site.order(), 0
    site.living.faults.at["init_transactions"] = repeat(gone())  # where its end is written
    while not sent:
        site.works(1)
        sent = some(site.orders.get(name)).progress.sent
    site.living.faults.at.clear()
    site.orders.cancel(name)
    cancelled = some(site.orders.get(name))
    assert (cancelled.state, cancelled.progress.sent) == ("cancelled", 3)


def test_whoever_stops_waits_for_what_runs_and_closes_its_reader(site: Site) -> None:
    site.works()
    site.is_away = True
    site.order()
    closed = site.living.faults.passed["close"]
    site.works()
    assert site.asked
    site.end()
    assert asyncio.all_tasks(site.events) == set()
    assert site.living.faults.passed["close"] == closed + 1


def test_of_more_than_a_hundred_the_oldest_are_forgotten_once_all_are_over(site: Site) -> None:
    for number in range(103):
        write(site.living, job(id=f"{number:03d}", state="done", cleared=True))
    site.works()
    assert sorted(site.redrives or {}) == [f"{number:03d}" for number in range(3, 103)]


def test_letters_that_are_named_are_previewed_and_sent_and_no_others(site: Site) -> None:
    site.works()
    name = site.order(letters=places(2, 0))
    assert site.coordinator.jobs()[name].spans == (DeadLetterRange(DLQ, 0, 0, 3),)
    site.over(name)
    assert site.output == "ac"
    sent = [[job.id for job in site.orders.all(view)] for view in views(site.living.cluster)]
    assert sent == [[name], [], [name]]
    for _ in range(9):
        site.living.write(b"foreign", topic=DLQ)
    preview = site.orders.preview(RedriveRequest("bypass", DeadLetterFilter()))
    assert (preview.records_total, preview.skipped) == (END + 9, {"foreign": 9})
    assert [view.value for view in preview.samples] == [b"a", b"b", b"c"] + [b"foreign"] * 7
    site.living.cluster.logs[DLQ].partitions[0].delete_before(2)
    assert site.orders.preview(preview.order).records_total == END + 9 - 2
    named = site.orders.preview(RedriveRequest("bypass", DeadLetterFilter(), places(2, END + 8)))
    assert (named.records_total, named.skipped) == (2, {"foreign": 1})
    for wrong in (places(END + 9), places(0, 99), places(0, partition=1)):
        where = f"{DLQ}-{wrong[-1].partition}@{wrong[-1].offset}"
        with pytest.raises(NotPossible, match=f"no dead letter {where}; see /v1/dead-letters"):
            site.orders.preview(RedriveRequest("bypass", DeadLetterFilter(), wrong))


def test_it_runs_on_a_thread_that_ends_when_it_is_stopped() -> None:
    site = Site()
    site.redrives = {}
    site.coordinator.start()
    eventually(lambda: site.coordinator._known == {})
    site.coordinator.stop()
    site.events.close()
    assert not site.coordinator._thread.is_alive()


@pytest.mark.row(38)
def test_a_redrive_waits_for_the_registry_that_addresses_are_read_by(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = DeadLetterOwners.owner

    def away(*_: object) -> PartitionId:
        raise RegistryUnavailableError("http://registry", "does not answer")

    monkeypatch.setattr(DeadLetterOwners, "owner", away)
    site.works()
    outage = "the schema registry at http://registry, which does not answer"
    with pytest.raises(Unavailable, match=f"It needs {outage}"):
        site.orders.preview(RedriveRequest("bypass", DeadLetterFilter()))
    name = site.order()
    site.works()
    view = some(site.orders.get(name))
    assert (view.state, view.waiting_for) == ("running", f"It waits for {outage}.")
    monkeypatch.setattr(DeadLetterOwners, "owner", genuine)
    assert site.over(name) == "done"
    assert site.output == "abc"
