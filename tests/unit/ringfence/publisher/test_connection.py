"""The connection: where a publisher writes. The rest needs a real Kafka, see tests/broker."""

import pytest
from confluent_kafka import murmur2

EVERY = 2**31 - 1
"""A count of partitions at which the hash itself is seen."""


@pytest.mark.parametrize(
    ("name", "of_java"), [("21", -973932308), ("foobar", -790332482), ("abc", 479470107)]
)
def test_a_name_is_placed_as_javas_clients_place_a_key(name: str, of_java: int) -> None:
    assert murmur2(name.encode(), EVERY) == of_java & 0x7FFFFFFF
