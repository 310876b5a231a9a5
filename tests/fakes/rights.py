"""A fake of `kafka.acls.AclQueries`: everything is granted save what is denied."""

from collections.abc import Iterable

from confluent_kafka import KafkaError

from ringfence_service.kafka.acls import Granted
from ringfence_service.kafka.coordinator_topics import CoordinatorTopic
from ringfence_service.kafka.model import TopicSpec
from tests.fakes.log import FakeCluster

LOOKING = {"DESCRIBE", "DESCRIBE_CONFIGS"}
ALL = frozenset({"READ", "WRITE", "CREATE", "DELETE", "ALTER_CONFIGS"} | LOOKING)


class FakeRights:
    """See `ringfence_service.kafka.acls.AclQueries`."""

    def __init__(self, log: FakeCluster, transaction_max_ms: int | None = None) -> None:
        self._log = log
        self._transaction_max_ms = transaction_max_ms
        self.coordinators: list[CoordinatorTopic] = []

    def of_topics(self, names: Iterable[str]) -> dict[str, Granted]:
        return {
            name: self._granted(name)
            for name in names
            if name in self._log.logs or self._log.denies(name, "DESCRIBE")
        }

    def of_groups(self, group_ids: Iterable[str]) -> dict[str, Granted]:
        return {group_id: self._granted(f"group {group_id}") for group_id in group_ids}

    def unmakeable(self, topics: Iterable[TopicSpec]) -> dict[str, KafkaError]:
        refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
        return {t.name: refused for t in topics if self._log.denies(t.name, "CREATE")}

    def transaction_max_ms(self) -> int | None:
        return self._transaction_max_ms

    def coordinator_topics(self) -> list[CoordinatorTopic]:
        return self.coordinators

    def _granted(self, name: str) -> frozenset[str]:
        if self._log.denies(name, "DESCRIBE"):
            return frozenset()
        return frozenset(each for each in ALL if not self._log.denies(name, each))
