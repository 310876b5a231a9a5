"""Venue: one broker, or three, with a network before it that can be cut, slow or silent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.broker.proxy import Proxy, proxied, three_proxied
from tools.broker.embedded import EmbeddedBroker


class Venue(NamedTuple):
    """Where the soak takes place, and what can break there."""

    brokers: Mapping[int, EmbeddedBroker]
    proxy: Proxy
    client: Mapping[str, str]
    """For who judges, and is not troubled by the network; the service comes through the proxy."""


@contextmanager
def venue(folder: Path, brokers: int) -> Iterator[Venue]:
    """Brokers and network, for as long as the context lasts."""
    if brokers == 1:
        broker, proxy = proxied(folder)
        with broker, proxy:
            yield Venue({1: broker}, proxy, broker.client_properties)
        return
    cluster, proxy = three_proxied(folder)
    with cluster, proxy:
        yield Venue(cluster.nodes, proxy, cluster.client_properties)
