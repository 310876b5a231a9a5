"""Sides: the source and the target as a sentence names them, and questions that one left open."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from confluent_kafka import KafkaException

from service.faults import Fault, fault_of
from service.kafka_properties import KafkaSettings

Side = Literal["source", "target"]


class UnansweredError(Exception):
    """A cluster did not answer, or said no; `fault` has its reason."""

    def __init__(self, side: Side, fault: Fault) -> None:
        super().__init__(f"{side}: {fault.cause}")
        self.side = side
        self.fault = fault


@contextmanager
def asking(side: Side) -> Iterator[None]:
    """Name the side that a KafkaException came from."""
    try:
        yield
    except KafkaException as error:
        raise UnansweredError(side, fault_of(error.args[0])) from error


def named(side: Side, cluster: KafkaSettings) -> str:
    """Where a cluster is, for a sentence."""
    return f"the {side}'s broker at {cluster.common.get('bootstrap.servers')}"
