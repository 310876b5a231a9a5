"""What a group keeps of its members' shares is read as Kafka writes it."""

from ringfence_service.kafka.admin import shared_out
from ringfence_state.model import PartitionId

ONE_TOPIC = bytes.fromhex("0000 00000001 0001 74 00000003 00000000 00000001 00000002 00000000")
"""As a broker returned it for one member with three partitions of `t`."""
TWO_TOPICS = bytes.fromhex(
    "0003 00000002 0002 c3a9 00000001 00000007 0001 74 00000000 00000002 ffff"
)


def test_every_partition_of_every_topic_is_returned() -> None:
    assert list(shared_out(ONE_TOPIC)) == [PartitionId("t", number) for number in range(3)]
    assert list(shared_out(TWO_TOPICS)) == [PartitionId("\N{LATIN SMALL LETTER E WITH ACUTE}", 7)]


def test_a_member_that_was_given_nothing_has_no_share() -> None:
    assert list(shared_out(b"")) == []
