"""The compiled fast path for tests that have no Kafka client: what they read becomes pieces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from confluent_kafka import Message

from service.dedup import batch
from service.native.extension import loaded
from service.native.records import Records
from service.native.ring import FORMS
from state.model import PartitionId
from state.strategies.ring_memory import RingStrategy
from tests.support import deciding

needs_native = pytest.mark.skipif(loaded().module is None, reason=loaded().why)


@contextmanager
def native_rings() -> Iterator[pytest.MonkeyPatch]:
    """Have rings loaded in compiled form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RingStrategy, "forms", FORMS)
        yield patch


@contextmanager
def native_deciding() -> Iterator[None]:
    """Have the worlds of `tests.support.deciding` decide pieces."""

    def read(messages: Sequence[Message]) -> batch.ParsedRecords:
        sources = [PartitionId(each.topic() or "", each.partition() or 0) for each in messages]
        return batch.read(Records.of(messages, vars(batch)["read_headers"](messages), sources))

    with native_rings() as patch:
        patch.setattr(deciding, "read", read)
        yield
