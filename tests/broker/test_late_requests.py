"""A request of a transaction is lost, or its answer is, or it arrives in a later transaction.

The client sends a request again when its connection is lost, and is answered. The first copy may
still be on its way: the broker has it one, two or five transactions later. Whatever it is, every
transaction is committed as a whole or not at all. On one broker every two of request, fault, ends,
distance and moment meet, on three it is a sample; RINGFENCE_LATE_REQUESTS=all runs all at all.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.broker.batches import PARTITIONS, Batches, Ends, Members
from tests.broker.conftest import Network, ThreeNetwork
from tests.broker.proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Proxy,
    Trouble,
    What,
)
from tests.broker.topics import create_topic, delete_topic
from tests.support.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.row(15), pytest.mark.row(29)]

REQUESTS: Final = {
    "InitProducerId": INIT_PRODUCER_ID,
    "AddPartitionsToTxn": ADD_PARTITIONS_TO_TXN,
    "Produce": PRODUCE,
    "AddOffsetsToTxn": ADD_OFFSETS_TO_TXN,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
    "EndTxn": END_TXN,
}
LOST: Final = (What.CUT, What.CUT_ANSWER, What.SILENT)
AMID: Final = "between its records and its offsets"
LAST: Final = "before its end"
MOMENTS: Final = {
    "before it begins": None,
    "before its records": ADD_PARTITIONS_TO_TXN,
    AMID: ADD_OFFSETS_TO_TXN,
    LAST: END_TXN,
}
"""Of a later transaction, by the request that waits until the late one is answered."""
DISTANCES: Final = (1, 2, 5)
LATER_ENDS: Final = (Ends.COMMITS, Ends.REFUSED)
ALL: Final = os.environ.get("RINGFENCE_LATE_REQUESTS") == "all"


class Case(NamedTuple):
    """One request, what becomes of it, and where its first copy arrives, if it does."""

    request: str
    what: What
    own_end: Ends
    later: int = 0
    moment: str = ""
    later_end: Ends = Ends.COMMITS

    @property
    def sentence(self) -> str:
        where = f"{self.request} of a transaction that {self.own_end.value}"
        if not self.later:
            return f"{where}, {self.what.value}"
        after = {1: "in the next one", 2: "in the second one after", 5: "in the fifth one after"}
        return (
            f"{where}, arrives {after[self.later]}, {self.moment}, and that one"
            f" {self.later_end.value}"
        )


def own_ends(request: str) -> tuple[Ends, Ends]:
    """How a transaction may end that this request is part of."""
    early = request in {"AddPartitionsToTxn", "Produce"}
    return Ends.COMMITS, Ends.UNDECIDED if early else Ends.REFUSED


def all_cases() -> Iterator[Case]:
    """Every request and fault, and every moment at every distance."""
    for request in REQUESTS:
        for own_end, what in product(own_ends(request), LOST):
            yield Case(request, what, own_end)
        initializer = product(own_ends(request), DISTANCES, MOMENTS, LATER_ENDS)
        for own_end, later, moment, later_end in initializer:
            yield Case(request, What.OUTLIVES, own_end, later, moment, later_end)


def pairs() -> Iterator[Case]:
    """Cases in which every two values meet that can."""
    for row, request in enumerate(REQUESTS):
        for column, what in enumerate(LOST):
            yield Case(request, what, own_ends(request)[(row + column) % 2])
        for column, moment in enumerate(MOMENTS):
            place = row + column
            own_end, later = own_ends(request)[place % 2], DISTANCES[place % 3]
            later_end = LATER_ENDS[place // 3 % 2]
            yield Case(request, What.OUTLIVES, own_end, later, moment, later_end)


def sample() -> Iterator[Case]:
    """Each request lost once, and once late after each end."""
    for row, (request, what) in enumerate(zip(REQUESTS, cycle(LOST), strict=False)):
        yield Case(request, what, own_ends(request)[row % 2])
        moment = LAST if request == "TxnOffsetCommit" else AMID
        ends = zip(own_ends(request), islice(cycle(LATER_ENDS), row, row + 2), strict=True)
        for own_end, later_end in ends:
            yield Case(request, What.OUTLIVES, own_end, 1, moment, later_end)


class Place(NamedTuple):
    """A cluster, the proxy before it, and the group."""

    brokers: int
    client: Mapping[str, str]
    proxy: Proxy
    members: Members

    @contextmanager
    def batches(self, folder: Path, topic: str) -> Iterator[Batches]:
        """Those of one test."""
        create_topic(self.client, topic, PARTITIONS, replicas=self.brokers)
        own = Batches(self.client, folder, topic, self.proxy, self.members)
        yield own
        own.close()
        delete_topic(self.client, topic)  # the next broker that is killed starts sooner


@contextmanager
def joined(client: Mapping[str, str], proxy: Proxy, folder: Path, brokers: int) -> Iterator[Place]:
    create_topic(client, "in", PARTITIONS, replicas=brokers)
    members = Members(client, folder, "in")
    yield Place(brokers, client, proxy, members)
    members.close()


@pytest.fixture(scope="module")
def one(_network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    broker, proxy = _network
    with joined(broker.client_properties, proxy, tmp_path_factory.mktemp("one"), 1) as place:
        yield place


@pytest.fixture(scope="module")
def all_three(_three: ThreeNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    brokers, proxy = _three
    with joined(brokers.client_properties, proxy, tmp_path_factory.mktemp("three"), 3) as place:
        yield place


@pytest.mark.usefixtures("network")
@pytest.mark.parametrize(
    "case", list(all_cases() if ALL else pairs()), ids=lambda case: case.sentence
)
def test_every_transaction_is_committed_as_a_whole_or_not_at_all(
    one: Place, tmp_path: Path, topic_name: Callable[[str], str], case: Case
) -> None:
    with one.batches(tmp_path, topic_name("batches")) as batches:
        try_out(batches, one.proxy, case)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    "case", list(all_cases() if ALL else sample()), ids=lambda case: case.sentence
)
def test_every_transaction_over_three_brokers_is_committed_as_a_whole_or_not_at_all(
    all_three: Place, tmp_path: Path, topic_name: Callable[[str], str], case: Case
) -> None:
    with all_three.batches(tmp_path, topic_name("batches")) as batches:
        try_out(batches, all_three.proxy, case)


def try_out(batches: Batches, proxy: Proxy, case: Case) -> None:
    if case.request != "InitProducerId":  # the first transaction's
        batches.commit()
    proxy.provoke(Trouble(REQUESTS[case.request], case.what, times=1))
    batches.end(case.own_end)
    assert proxy.struck == 1, "the request was never sent"
    if case.later:
        for _ in range(case.later - 1):
            batches.commit()
        waits = MOMENTS[case.moment]
        if waits is None:
            proxy.deliver()
        else:
            proxy.before(waits, proxy.deliver)
        batches.end(case.later_end)
        if case.later_end is Ends.REFUSED:
            # The group may refuse the offsets before the records are sent.
            proxy.act_at_last()
        # A client that has waited for too long asks again, and goes on before the late copy.
        eventually(lambda: proxy.delivered == 1)
        batches.verify()
    batches.commit()
    batches.verify()
