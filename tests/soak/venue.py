"""Venue: one broker, or three, with a network before it that can be cut, slow or silent."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.broker.proxy import Proxy, proxied
from tools.broker.config import HOST, Door
from tools.broker.config import _free_port as free_port
from tools.broker.embedded import EmbeddedBroker
from tools.broker.three import ThreeBrokers


class Venue(NamedTuple):
    """Where the soak takes place, and what can break there."""

    brokers: Mapping[int, EmbeddedBroker]
    proxy: Proxy
    client: Mapping[str, str]
    """For who judges, and is not troubled by the network."""
    through: Mapping[str, str]
    """For the service, which comes through the proxy."""


@contextmanager
def venue(folder: Path, brokers: int) -> Iterator[Venue]:
    """Brokers and network, for as long as the context lasts."""
    if brokers == 1:
        broker, proxy = proxied(folder)
        through = {"bootstrap.servers": f"{HOST}:{proxy.port}"}
        with broker, proxy:
            yield Venue({1: broker}, proxy, broker.client_properties, through)
        return
    doors = [Door(port=free_port(0), advertised=free_port(0)) for _ in range(brokers)]
    proxy = Proxy({door.advertised: door.port for door in doors})
    through = {"bootstrap.servers": ",".join(f"{HOST}:{door.advertised}" for door in doors)}
    with ThreeBrokers(folder, doors=doors) as cluster, proxy:
        yield Venue(cluster.nodes, proxy, cluster.client_properties, through)
