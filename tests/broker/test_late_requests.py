"""A request of a transaction is lost, or its answer is, or it arrives in a later transaction.

The client sends a request again when its connection is lost, and is answered. The first copy may
still be on its way: the broker has it one, two or five transactions later. Whatever it is, every
transaction is committed as a whole or not at all. On one broker each distance has one moment, on
three it is a sample; RINGFENCE_LATE_REQUESTS=all runs every moment at every distance on both.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.broker.batches import PARTITIONS, Batches, Ends, Members
from tests.broker.conftest import create_topic
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
    proxied,
    three_proxied,
)

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
ARRIVALS: Final = [(1, AMID), (2, AMID), (5, LAST)]
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


def cases(*, three_brokers: bool) -> Iterator[Case]:
    """In a long run every moment at every distance; else one moment for each."""
    for request in REQUESTS:
        early = request in {"AddPartitionsToTxn", "Produce"}
        own_ends = (Ends.COMMITS, Ends.UNDECIDED if early else Ends.REFUSED)
        for own_end, what in product(own_ends, LOST):
            if ALL or own_end is Ends.COMMITS or not three_brokers:
                yield Case(request, what, own_end)
        arrivals = list(product((1, 2, 5), MOMENTS)) if ALL else ARRIVALS
        if three_brokers and not ALL:
            arrivals = [(1, LAST if request == "TxnOffsetCommit" else AMID)]
        for own_end, (later, moment), later_end in product(own_ends, arrivals, LATER_ENDS):
            yield Case(request, What.OUTLIVES, own_end, later, moment, later_end)


class Network(NamedTuple):
    """A cluster, the proxy before it, and the group."""

    brokers: int
    client: Mapping[str, str]
    proxy: Proxy
    members: Members


@pytest.fixture(scope="module")
def network(
    embedded_kind: None,  # noqa: ARG001 - skips where there is none
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Network]:
    folder, brokers = tmp_path_factory.mktemp("proxied"), request.param
    cluster, proxy = proxied(folder) if brokers == 1 else three_proxied(folder)
    with cluster, proxy:
        client = cluster.client_properties
        create_topic(client, "in", PARTITIONS, replicas=brokers)
        members = Members(client, folder, "in")
        yield Network(brokers, client, proxy, members)
        members.close()


@pytest.fixture
def batches(
    network: Network, tmp_path: Path, topic_name: Callable[[str], str]
) -> Iterator[Batches]:
    topic = topic_name("batches")
    create_topic(network.client, topic, PARTITIONS, replicas=network.brokers)
    own = Batches(network.client, tmp_path, topic, network.proxy, network.members)
    yield own
    own.close()
    network.proxy.calm()


@pytest.mark.parametrize("network", [1], indirect=True, ids=["one broker"])
@pytest.mark.parametrize("case", list(cases(three_brokers=False)), ids=lambda case: case.sentence)
def test_every_transaction_is_committed_as_a_whole_or_not_at_all(
    batches: Batches, network: Network, case: Case
) -> None:
    try_out(batches, network.proxy, case)


@pytest.mark.parametrize("network", [3], indirect=True, ids=["three brokers"])
@pytest.mark.parametrize("case", list(cases(three_brokers=True)), ids=lambda case: case.sentence)
def test_every_transaction_over_three_brokers_is_committed_as_a_whole_or_not_at_all(
    batches: Batches, network: Network, case: Case
) -> None:
    try_out(batches, network.proxy, case)


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
        assert proxy.delivered == 1, "the late copy was never delivered"
        batches.verify()
    batches.commit()
    batches.verify()
