"""Assign: have a consumer read from given offsets, and forget how far it was before."""

import time
from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, TopicPartition

_PAUSE_S: Final = 0.001


def assign_anew(consumer: Consumer, places: Sequence[TopicPartition]) -> None:
    """Read from these on; from now on `position` tells of this assignment alone.

    librdkafka stops in the background where it read, and until then tells how far that had come:
    who took that for the new assignment would pass over records that were never given out.
    """
    before = consumer.assignment()
    consumer.unassign()
    while any(place.offset >= 0 for place in consumer.position(before)):
        time.sleep(_PAUSE_S)
    consumer.assign(list(places))
