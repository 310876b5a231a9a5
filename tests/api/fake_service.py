"""A service without Kafka: the real board, inbox and metrics, and a thread in the loop's place."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ringfence_api.ports import ServiceView
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.kafka_properties import KafkaSettings
from ringfence_service.config.model import ApiSettings, Config, RouteSettings, ServiceSettings
from ringfence_service.metadata.audit import AuditHistory, AuditPage, AuditQuery, AuditRecord
from ringfence_service.metadata.instances import Registration
from ringfence_service.metadata.sessions import SessionRecord
from ringfence_service.metadata.settings import SettingsHistory
from ringfence_service.metadata.settings_change import (
    Change,
    SettingsChange,
    SettingsSnapshot,
    checked,
)
from ringfence_service.peers.protocol import InstanceStatus, PeerFailure, StatusReply
from ringfence_service.queries.addresses import (
    AddressAnswer,
    AddressesAnswer,
    AddressesQuery,
    AddressQuery,
    AddressRow,
    DirectoryAnswer,
    DirectoryQuery,
    MemoryStatus,
)
from ringfence_service.queries.errors import NameInUse, NotPossible, Unavailable
from ringfence_service.queries.ids import (
    ChangeAnswer,
    ClearAddress,
    ForgetId,
    IdAnswer,
    IdCursor,
    IdLocation,
    IdQuery,
    IdsAnswer,
    IdSearch,
    IdsLookup,
    IdsQuery,
    ImportAnswer,
    ImportIds,
    LookupAnswer,
    RememberedId,
)
from ringfence_service.queries.inbox import QueryInbox, QueryService
from ringfence_service.queries.partitions import SkipBatch, SkippedBatch
from ringfence_service.queries.publishers import (
    PublisherAnswer,
    PublisherProgress,
    PublisherQuery,
    PublishersAnswer,
    PublishersQuery,
    SetSequence,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_service.queries.settings import (
    CacheEviction,
    EffectiveSetting,
    EvictionAnswer,
    EvictionQuery,
)
from ringfence_service.queries.status import (
    NO_COUNTS,
    PartitionStatus,
    RouteCounts,
    ServiceInfo,
    ServiceStatus,
    StandbyStatus,
    StatusBoard,
)
from ringfence_service.telemetry.metrics import Metrics
from tests.api.fake_letters import FakeLetters, FakeRedrives
from tests.support.statuses import STARTED_AT, changed
from tests.support.waiting import LIMIT_S

STARTED_MS = round(STARTED_AT.timestamp() * 1000)
INFO = ServiceInfo(
    version="0.1.0",
    python="3.11.9",
    libraries={"confluent_kafka": "2.16.1", "librdkafka": "2.16.0"},
    cluster_id="cluster-1",
    instance="0",
    group_id="ringfence",
    fast_path="python",
)
SETTINGS = {
    "strategy": EffectiveSetting("ring", "default"),
    "id_cache_size": EffectiveSetting(20_000, "#"),
}
RUNNING_PARTITION = PartitionStatus(
    topic="orders",
    partition=3,
    phase="running",
    committed_offset=90,
    next_offset=95,
    end_offset=100,
    lag_records=5,
    changelog_next_offset=12,
    restored_records=7,
    restore_remaining_records=0,
    addresses=2,
    groups_open=1,
)
RESTORING_PARTITION = changed(
    RUNNING_PARTITION,
    partition=4,
    phase="restoring",
    restore_remaining_records=41,
    lag_records=None,
)
OTHER_PARTITION = changed(RUNNING_PARTITION, partition=5, lag_records=2)
RUNNING = ServiceStatus(
    phase="running",
    waiting_for=None,
    instance="0",
    group_id="ringfence",
    started_at=STARTED_AT,
    partitions=(RUNNING_PARTITION,),
    counts=NO_COUNTS.more(
        records_consumed=10,
        records_accepted=8,
        duplicates=1,
        dead_letters=2,
        transactions_committed=4,
        last_commit_at=STARTED_AT,
        refused=1,
        redriven=1,
        redriven_accepted=1,
    ),
    complete=True,
    routes=(RouteCounts("orders", 10, no_id=2, compared=1),),
)
STRANGE = "nosuch"
"""An address of which no record was ever seen."""
STARTING = RUNNING._replace(
    phase="starting",
    partitions=(),
    counts=RUNNING.counts.model_copy(update={"last_commit_at": None}),
    complete=False,
)


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def remembering(held: dict[tuple[str, bytes], IdLocation]) -> Callable[[Query], Answer]:
    """Answer as a loop would that remembers these ids."""

    def answer(query: Query) -> Answer:
        if isinstance(query, AddressQuery):
            times_ms = [seen.time_ms for (address, _), seen in held.items() if address == query[0]]
            ring = MemoryStatus(
                topic="orders",
                partition=3,
                ids_held=len(times_ms),
                capacity=20_000,
                bytes=130 * len(times_ms),
                oldest_time_ms=min(times_ms, default=None),
                newest_time_ms=max(times_ms, default=None),
                horizon_ms=None,
                disk_bytes=44 * len(times_ms),
            )
            if query.address == STRANGE:
                return AddressAnswer(query.address, SETTINGS, (), 0, 0, complete=True)
            return AddressAnswer(query.address, SETTINGS, (ring,), 7, 2, STARTED_MS, complete=True)
        if isinstance(query, DirectoryQuery | AddressesQuery):
            return _of_addresses(query, held)
        if isinstance(query, IdQuery):
            seen = held.get((query.address, query.identifier))
            found = () if seen is None else (seen,)
            return IdAnswer(seen is not None, found, SETTINGS, complete=True)
        if isinstance(query, IdsLookup):
            asked = [held.get((query.address, each)) for each in query.identifiers]
            told = tuple(() if each is None else (each,) for each in asked)
            return LookupAnswer(told, complete=True)
        if isinstance(query, IdSearch):
            asked = [held.get((address, query.identifier)) for address in query.addresses]
            told = tuple(() if each is None else (each,) for each in asked)
            return LookupAnswer(told, complete=True)
        if isinstance(query, IdsQuery | ImportIds | ForgetId | ClearAddress):
            return _of_ids(query, held)
        if isinstance(query, EvictionQuery):
            return _of_settings(query)
        assert isinstance(query, PublisherQuery | PublishersQuery | SetSequence | SkipBatch)
        return _of_partitions(query) if isinstance(query, SkipBatch) else _of_publishers(query)

    return answer


def _of_addresses(
    query: DirectoryQuery | AddressesQuery, held: dict[tuple[str, bytes], IdLocation]
) -> Answer:
    """Of each address as many ids are held, and as many duplicates were found, as stand here."""
    counts = Counter(address for address, _ in held)
    if isinstance(query, AddressesQuery):
        rows = [
            AddressRow(name, "ring", (_ring(counts[name]),), 7, counts[name])
            for name in sorted(set(query.addresses) & counts.keys())
        ]
        return AddressesAnswer(tuple(rows), STARTED_MS, complete=True)
    names, ids = tuple(counts), tuple(counts.values())
    fill, nothing = tuple(count / 20_000 for count in ids), (None,) * len(ids)
    return DirectoryAnswer(names, ids, fill, nothing, names, ids, ids, complete=True)


def _ring(ids: int) -> MemoryStatus:
    return MemoryStatus("orders", 3, ids, 20_000, 130 * ids, None, None, None, 0, 44 * ids)


def _of_ids(
    query: IdsQuery | ImportIds | ForgetId | ClearAddress,
    held: dict[tuple[str, bytes], IdLocation],
) -> Answer:
    """What is held is listed by its place in the table; nothing is ever changed."""
    mine = [(i, seen) for (address, i), seen in held.items() if address == query.address]
    if isinstance(query, IdsQuery):
        mine = mine[::-1] if query.oldest_first else mine
        start = 0 if query.cursor is None else query.cursor.number
        rows = enumerate(mine[start : start + query.limit], start)
        page = [RememberedId(*each, IdCursor("orders", 3, number)) for number, each in rows]
        ends = start + query.limit >= len(mine)
        cursor = None if ends else IdCursor("orders", 3, start + query.limit)
        return IdsAnswer(tuple(page), cursor, complete=True)
    if isinstance(query, ImportIds):
        topics = [query.topic or each.topic for each in query.ids]
        if "orders" not in topics:
            raise NotPossible(f"{topics[0]} is no topic that this instance decides.")
        held_ids = {identifier for identifier, _ in mine}
        new = sum(each.identifier not in held_ids for each in query.ids)
        return ImportAnswer(topics.count("orders"), new, complete=True)
    known = (
        mine if isinstance(query, ClearAddress) else [i for i, _ in mine if i == query.identifier]
    )
    return ChangeAnswer(len(known), complete=True)


def _of_settings(query: EvictionQuery) -> Answer:
    """Of `orders` three ids are held, and settings that give another strategy forget them."""
    keys = query.patterns.get("orders", {})
    changes = keys.get("strategy", "ring") != "ring"
    kept = 0 if changes else min(3, int(str(keys.get("id_cache_size", 3))))
    strategy = str(keys.get("strategy", "ring"))
    times_ms = (1_700_000_000_000, 1_700_000_000_000 + 2 - kept) if kept < 3 else (None, None)
    told = CacheEviction("orders", "orders", 3, "ring", strategy, changes, 3, 3 - kept, *times_ms)
    return EvictionAnswer((told,), 1, int(changes), 3 - kept, complete=True)


def _of_partitions(query: SkipBatch) -> Answer:
    """One partition stands before a batch of ten records."""
    if query[:2] != ("orders", 0):
        raise NotPossible(f"{query.topic}-{query.partition} does not stand before such a batch.")
    return SkippedBatch("orders", 0, query.offset, query.offset + 9, 6634, complete=True)


def _of_publishers(query: PublisherQuery | PublishersQuery | SetSequence) -> Answer:
    """Of P alone anything is known; on another address than orders no number can be set."""
    if isinstance(query, PublishersQuery):
        names = [name for name in ("P", "Q") if name > query.after]
        return PublishersAnswer(tuple(names[: query.limit]), complete=True)
    place = PublisherProgress("orders", "orders", 3, 7, None)
    if isinstance(query, SetSequence):
        if query.address != "orders":
            raise NotPossible(f"The address {query.address} has strategy ring.")
        place = place._replace(number=query.number)
    places = (place,) if query.publisher == "P" else ()
    return PublisherAnswer(query.publisher, None, None, places, complete=True)


class FakeRegistry:
    """Names that were given to users."""

    def __init__(self) -> None:
        self._sessions: dict[str, SessionRecord] = {}

    def open(self, publisher: str, user: str) -> SessionRecord:
        last = self._sessions.get(publisher)
        self._check(publisher, user)
        session = SessionRecord(1 if last is None else last.epoch + 1, user, 1_700_000_000_000)
        self._sessions[publisher] = session
        return session

    def end(self, publisher: str, user: str) -> None:
        self._check(publisher, user)
        last = self._sessions.get(publisher, SessionRecord(0, user, 0))
        self._sessions[publisher] = last._replace(is_open=False)

    def _check(self, publisher: str, user: str) -> None:
        last = self._sessions.get(publisher)
        if last is not None and last.is_open and last.user != user:
            raise NameInUse(f"{publisher} has a session of another user.")


class FakeFleet:
    """This instance, one that owns another partition, and one that is gone."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board

    async def instance_statuses(self, timeout_s: float) -> tuple[InstanceStatus, ...]:
        assert timeout_s > 0
        own, other, gone = (
            Registration(name, f"http://127.0.0.1:808{name}", STARTED_MS, "0.1.0")
            for name in ("0", "1", "2")
        )
        copy = StandbyStatus(topic="orders", partition=3, warm=True, lag_records=0)
        theirs = RUNNING._replace(
            instance="1", partitions=(OTHER_PARTITION,), standbys=(copy,), complete=False
        )
        return (
            InstanceStatus(own, True, StatusReply("0.1.0", 7, self._board.read()), None),  # noqa: FBT003
            InstanceStatus(other, False, StatusReply("0.1.0", 6, theirs), None),  # noqa: FBT003
            InstanceStatus(gone, False, None, PeerFailure("unreachable", "it cannot be reached")),  # noqa: FBT003
        )


class FakeAudit:
    """Records of changes in memory, as `AuditTopic` keeps those of the topic."""

    def __init__(self) -> None:
        self.written: list[AuditRecord] = []
        self.refuses = False
        self._trail = AuditHistory()

    def write(self, record: AuditRecord) -> None:
        if self.refuses:
            raise Unavailable("The broker is away.", retry_after_s=3)
        self.written.append(record)
        self._trail.take(*record.record)

    def page(self, query: AuditQuery, size: int, before: str | None) -> AuditPage:
        return self._trail.page(query, size, before)


FILE = Config(
    KafkaSettings({}, {}, {}, {}),
    ServiceSettings(),
    ApiSettings(),
    (RouteSettings(name="orders", inputs=("orders",), output="out"),),
    AddressBook.of({"#": {"id_cache_size": 20_000}}),
)


class FakeSettings:
    """What is set, in memory: the real rules and the real history, and everything applied."""

    def __init__(self, file: Config = FILE) -> None:
        self._file = file
        self._documents = SettingsHistory()
        self.is_applied = self.is_known = True

    @classmethod
    def foreign(cls) -> "FakeSettings":
        """Some that a newer version has written."""
        settings = cls()
        settings._documents.take(b'["settings",1]', b'{"format":99}', 10)
        return settings

    @classmethod
    def unknown(cls) -> "FakeSettings":
        """Some that are not read yet."""
        settings = cls()
        settings.is_known = False
        return settings

    def read(self) -> SettingsSnapshot:
        if not self.is_known:
            raise Unavailable("The settings are not read yet.")
        return SettingsSnapshot.of(self._file, self._documents.copy())

    def try_out(self, change: Change) -> SettingsChange:
        standing = self.read()
        overlay = change(standing)
        return SettingsChange(standing, overlay, checked(standing, overlay), standing.revision)

    def edit(self, change: Change, *, actor: str, reason: str) -> SettingsChange:
        edited = self.try_out(change)
        records = self._documents.records(
            edited.overlay, actor=actor, reason=reason, time_ms=1_700_000_000_000
        )
        revision = edited.revision + 10
        for key, value in records:
            self._documents.take(key, value, revision)
        return edited._replace(revision=revision)

    def wait(self, _edited: SettingsChange, _timeout_s: float) -> bool:
        return self.is_applied


def make_view(
    status: ServiceStatus, clock: Clock, inbox: QueryService, *, any_host: bool = False
) -> ServiceView:
    """Return a view of a service that has published `status`."""
    board = StatusBoard(STARTING, clock)
    board.publish(status)
    is_up = status.phase == "running"
    letters = FakeLetters(is_up=is_up)
    return ServiceView(
        info=lambda: INFO,
        board=board,
        inbox=inbox,
        registry=FakeRegistry(),
        fleet=FakeFleet(board),
        audit=FakeAudit(),
        settings=FakeSettings(),
        metrics=Metrics(board, {"version": "0.1.0"}, addresses_max=100),
        allowed_hosts=None if any_host else frozenset({"127.0.0.1", "localhost", "::1"}),
        heartbeat_max_ms=30_000,
        ask_timeout_s=LIMIT_S,
        letters=letters,
        redrives=FakeRedrives(letters, is_up=is_up),
    )


def board_of(view: ServiceView) -> StatusBoard:
    """The board of a view that `make_view` has made."""
    assert isinstance(view.board, StatusBoard)
    return view.board


def running(inbox: QueryService | None = None, **changed: Any) -> ServiceView:
    """A view of a service that runs; nobody hears its inbox, if none is given."""
    return replace(make_view(RUNNING, Clock(), inbox or QueryInbox(depth=4)), **changed)


@contextmanager
def answering(answer: Callable[[Query], Answer], **changed: Any) -> Iterator[ServiceView]:
    """A view of a service that runs and whose loop answers like this."""
    inbox = QueryInbox(depth=4)
    with serving(inbox, answer):
        yield running(inbox, **changed)


@contextmanager
def serving(inbox: QueryInbox, answer: Callable[[Query], Answer]) -> Iterator[None]:
    """Answer what the inbox holds, on a thread, until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.002):
            inbox.change(answer, 16)
            inbox.answer(answer, lambda: True)

    thread = threading.Thread(target=run, name="fake-loop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
