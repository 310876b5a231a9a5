"""A service without Kafka: the real board, inbox and metrics, and a thread in the loop's place."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from api.view import ServiceView
from service.control import (
    AddressAnswer,
    AddressQuery,
    Answer,
    EffectiveSetting,
    IdAnswer,
    Inbox,
    Query,
    RingStatus,
    Sighting,
)
from service.metrics import Metrics
from service.status import Info, PartitionStatus, Status, StatusBoard

STARTED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
INFO = Info(
    version="0.1.0",
    python="3.11.9",
    libraries={"confluent_kafka": "2.16.1", "librdkafka": "2.16.0"},
    cluster_id="cluster-1",
    instance="0",
    group_id="ringfence",
)
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
)
RESTORING_PARTITION = RUNNING_PARTITION._replace(
    partition=4, phase="restoring", restore_remaining_records=41, lag_records=None
)
RUNNING = Status(
    phase="running",
    waiting_for=None,
    instance="0",
    group_id="ringfence",
    started_at=STARTED_AT,
    partitions=(RUNNING_PARTITION,),
    records_consumed=10,
    records_accepted=8,
    duplicates=1,
    dead_letters=2,
    transactions_committed=4,
    transactions_aborted=0,
    last_commit_at=STARTED_AT,
    complete=True,
)
STARTING = RUNNING._replace(phase="starting", partitions=(), last_commit_at=None, complete=False)


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def remembering(held: dict[tuple[str, bytes], Sighting]) -> Callable[[Query], Answer]:
    """Answer as a loop would that remembers these ids."""

    def answer(query: Query) -> Answer:
        if isinstance(query, AddressQuery):
            times_ms = [seen.time_ms for (address, _), seen in held.items() if address == query[0]]
            ring = RingStatus(
                topic="orders",
                partition=3,
                ids_held=len(times_ms),
                capacity=20_000,
                bytes=130 * len(times_ms),
                oldest_time_ms=min(times_ms, default=None),
                newest_time_ms=max(times_ms, default=None),
                horizon_ms=None,
            )
            settings = {"id_cache_size": EffectiveSetting(20_000, "#")}
            return AddressAnswer(query.address, settings, (ring,), complete=True)
        seen = held.get((query.address, query.identifier))
        return IdAnswer(seen is not None, () if seen is None else (seen,), complete=True)

    return answer


def make_view(status: Status, clock: Clock, inbox: Inbox, *, any_host: bool = False) -> ServiceView:
    """Return a view of a service that has published `status`."""
    board = StatusBoard(STARTING, clock)
    board.publish(status)
    return ServiceView(
        info=lambda: INFO,
        board=board,
        inbox=inbox,
        metrics=Metrics(board, {"version": "0.1.0"}, addresses_max=100),
        allowed_hosts=None if any_host else frozenset({"127.0.0.1", "localhost", "::1"}),
        heartbeat_max_ms=30_000,
        ask_timeout_s=2.0,
    )


@contextmanager
def serving(inbox: Inbox, answer: Callable[[Query], Answer]) -> Iterator[None]:
    """Answer what the inbox holds, on a thread, until the block ends."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(0.002):
            inbox.run_pending(answer, limit=16)

    thread = threading.Thread(target=run, name="fake-loop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(5)
