"""Gaps between what a table has read and what its topics have."""

import pytest

from ringfence_pipeline.admin import KafkaPartition, OffsetSpan
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.gaps import OffsetGap, gaps_of

A, B, NEW = KafkaPartition("t", 0), KafkaPartition("t", 1), KafkaPartition("u", 0)


def test_a_gap_is_from_the_next_offset_to_the_first_that_is_there() -> None:
    there = {A: OffsetSpan(7, 9), B: OffsetSpan(5, 5)}
    assert gaps_of("messages", {A: 3, B: 5}, there) == [OffsetGap("messages", "t", 0, 3, 7)]


def test_a_partition_that_was_never_read_is_missed_from_its_first_offset() -> None:
    there = {A: OffsetSpan(0, 9), NEW: OffsetSpan(2, 2)}
    assert gaps_of("messages", {A: 3}, there) == [OffsetGap("messages", "u", 0, 0, 2)]


@pytest.mark.parametrize("there", [{}, {A: OffsetSpan(0, 2)}])
def test_a_topic_that_is_gone_or_begins_again_has_no_gap(
    there: dict[KafkaPartition, OffsetSpan],
) -> None:
    with pytest.raises(PipelineError, match="t-0 ends before what table 'messages'") as failed:
        gaps_of("messages", {A: 3}, there)
    assert failed.value.exit_code == CONTRADICTION
