"""What the brokers cannot keep for their coordinators is a problem with the setting to change."""

import pytest

from ringfence_service.kafka.coordinator_topics import OFFSETS, TRANSACTIONS, CoordinatorTopic


@pytest.mark.parametrize(
    ("topic", "what", "fix"),
    [
        (
            CoordinatorTopic(OFFSETS, exists=False, replicas=3, min_isr=1, brokers=1),
            "offsets.topic.replication.factor of the brokers is 3, and the cluster has 1 broker",
            "set offsets.topic.replication.factor to at most 1",
        ),
        (
            CoordinatorTopic(TRANSACTIONS, exists=False, replicas=3, min_isr=2, brokers=2),
            (
                "transaction.state.log.replication.factor of the brokers is 3, "
                "and the cluster has 2 brokers"
            ),
            "set transaction.state.log.replication.factor to at most 2",
        ),
        (
            CoordinatorTopic(TRANSACTIONS, exists=False, replicas=1, min_isr=2, brokers=1),
            "__transaction_state has 1 replica, and 2 have to be in sync",
            "set transaction.state.log.min.isr to at most 1 on the brokers",
        ),
        (
            CoordinatorTopic(TRANSACTIONS, exists=True, replicas=1, min_isr=2, brokers=3),
            "__transaction_state has 1 replica, and 2 have to be in sync",
            "set min.insync.replicas of the topic __transaction_state to at most 1",
        ),
    ],
)
def test_a_topic_that_cannot_be_kept_is_a_problem(
    topic: CoordinatorTopic, what: str, fix: str
) -> None:
    (problem,) = topic.problems()
    assert what in problem.what
    assert fix in problem.fix


@pytest.mark.parametrize(
    "topic",
    [
        CoordinatorTopic(OFFSETS, exists=False, replicas=3, min_isr=2, brokers=3),
        CoordinatorTopic(OFFSETS, exists=True, replicas=3, min_isr=2, brokers=1),
        CoordinatorTopic(TRANSACTIONS, exists=False, replicas=1, min_isr=1, brokers=1),
    ],
)
def test_a_topic_that_can_be_kept_is_none(topic: CoordinatorTopic) -> None:
    assert list(topic.problems()) == []
