"""What the records of a trickle may become: what is wrong about one is found."""

import pytest
from confluent_kafka import Message

from bench.trickle import fates, value_of
from ringfence_client.headers import DeadLetter

SCHEMAS = (1, 2)


def decided(number: int, reason: str = "", value: bytes | None = None) -> Message:
    return Message(
        key=b"%d" % number,
        value=value_of(number, SCHEMAS[number]) if value is None else value,
        headers=[(DeadLetter.REASON, reason.encode())] if reason else None,
    )


def test_a_record_is_accepted_and_one_of_an_odd_schema_may_be_dead_lettered() -> None:
    assert fates(SCHEMAS, [decided(0), decided(1)]) == {"accepted": 2}
    found = fates(SCHEMAS, [decided(1), decided(0, "missing-id")])
    assert found == {"accepted": 1, "missing-id": 1}


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ([], "record 1 came 0 times"),
        ([decided(1)] * 2, "record 1 came 2 times"),
        ([decided(1, value=b"x")], "record 1 is changed"),
        ([decided(1, "missing-id")], "record 1, of schema 2, is missing-id"),
        ([decided(1, "failed-check")], "record 1, of schema 2, is failed-check"),
    ],
)
def test_a_record_that_is_lost_doubled_changed_or_blamed_is_named(
    wrong: list[Message], cause: str
) -> None:
    with pytest.raises(RuntimeError, match=f"^1 wrong fates: {cause}"):
        fates(SCHEMAS, [decided(0), *wrong])


def test_only_a_missing_id_is_a_reason() -> None:
    with pytest.raises(RuntimeError, match="record 0, of schema 1, is duplicate"):
        fates(SCHEMAS, [decided(0, "duplicate"), decided(1)])
