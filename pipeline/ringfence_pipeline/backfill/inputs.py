"""Backfill inputs: the routes and settings of the topics to read, as a value to send to executors.

An executor needs neither a Kafka client nor a library for regular expressions or validation.

With `instead_of`, the records of every topic are decided as if they were of that input; the topic
may be the output of a route, or a copy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from ringfence_client.headers import (
    DUPLICATE_ID_ALIASES,
    EXPIRES_AT,
    GROUP,
    GROUP_POSITION,
    GROUP_SIZE,
    NUMBER,
    PREVIOUS,
    PUBLISHER,
    STREAM,
    Headers,
)
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.config.possible_addresses import Shares
from ringfence_service.dedup.checks import DecisionContext
from ringfence_service.dedup.field import Field, HeaderField
from ringfence_service.dedup.output import OutputResolver
from ringfence_service.dedup.record import Record, RejectedError
from ringfence_service.dedup.repartition_keys import RepartitionKeys
from ringfence_service.dedup.route import InputPartition, InputRoute, resolve, unrouted
from ringfence_service.kafka.compression import Compression
from ringfence_service.kafka.model import TopicInfo
from ringfence_service.kafka.topics import OutputTopics, RepartitionTopic, by_address
from ringfence_state.cache import Cache
from ringfence_state.model import PartitionId

if TYPE_CHECKING:
    from ringfence_service.config.model import Config

NO_ADDRESS: Final = -1
"""Takes the place of the deciding partition: the first hop would reject the record."""

_CLAIMS: Final = (
    *sorted(DUPLICATE_ID_ALIASES),
    *(EXPIRES_AT, GROUP, GROUP_SIZE, GROUP_POSITION),
    *(PUBLISHER, NUMBER, STREAM, PREVIOUS),
)
_IN_A_BATCH: Final[Mapping[str, object]] = {"persist_id_cache": True, "address_idle_ms": 0}
"""Settings that a backfill replaces where they are set.

A batch is not a restart, so nothing is forgotten in between. When the service removes an idle
address depends on its transactions, so a backfill removes none.
"""
_TOPIC: Final = TopicInfo("", 1, 1 << 30, "", {})


class _AssumedTopics(OutputTopics):
    """Output topics that all exist; without a broker it is unknown which do."""

    def __init__(self) -> None:
        """Skip the initialisation of the base class, which needs a broker."""

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic for any name."""
        del name
        return _TOPIC


@dataclass(frozen=True)
class BackfillInputs:
    """Routes and address settings of the topics to read."""

    routes: tuple[RouteSettings, ...]
    patterns: Mapping[str, Mapping[str, object]]
    group_id: str
    by_address_partitions: int
    cache_memory_bytes: int
    topics: tuple[str, ...]
    instead_of: str | None = None

    @classmethod
    def of(
        cls, config: "Config", topics: Sequence[str], instead_of: str | None
    ) -> "BackfillInputs":
        """Return the inputs of a configuration."""
        patterns = {
            pattern: {key: _IN_A_BATCH.get(key, value) for key, value in keys.items()}
            for pattern, keys in config.addresses.patterns.items()
        }
        return cls(
            routes=config.routes,
            patterns=patterns,
            group_id=config.service.group_id,
            by_address_partitions=config.service.by_address_partitions,
            cache_memory_bytes=config.service.cache_memory_mb * 1024 * 1024,
            topics=tuple(topics),
            instead_of=instead_of,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for an executor: topics in place of the expressions that match them."""
        names: dict[str, set[str]] = {}
        for bound in self.by_topic.values():
            names.setdefault(bound.settings.name, set()).add(bound.topic)
        routes = tuple(
            replace(route, inputs=tuple(sorted(names[route.name])))
            for route in self.routes
            if route.name in names
        )
        own = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**own, "routes": routes}

    @cached_property
    def by_topic(self) -> Mapping[str, InputRoute]:
        """The route of each topic, or of the input that replaces it."""
        names = {topic: self.instead_of or topic for topic in self.topics}
        bound = resolve(self.routes, set(names.values()), self.group_id)
        return {topic: bound[name] for topic, name in names.items() if name in bound}

    @property
    def by_address(self) -> RepartitionTopic:
        """The topic that records of scopes `address` and `id` would go through."""
        return RepartitionTopic(by_address(self.group_id), self.by_address_partitions)

    @property
    def header_names(self) -> tuple[str, ...]:
        """The headers that some check reads."""
        fields = [each.header for each in self.fields if isinstance(each, HeaderField)]
        return tuple(dict.fromkeys((*_CLAIMS, *sorted(fields))))

    @cached_property
    def fields(self) -> frozenset[Field]:
        """Every field that a template of a route reads."""
        return frozenset().union(*(route.fields() for route in self.by_topic.values()))

    @cached_property
    def named_headers(self) -> frozenset[str]:
        """The headers that no check reads but to find an address, which they alone decide."""
        routes = self.by_topic.values()
        uses = [
            (field, field == route.address.field) for route in routes for field in route.fields()
        ]
        named = {field.header for field, alone in uses if alone and isinstance(field, HeaderField)}
        other = {f.header for f, alone in uses if not alone and isinstance(f, HeaderField)}
        return frozenset(named - other - set(_CLAIMS))

    @property
    def reads_keys(self) -> bool:
        """Whether a template uses the key of records."""
        return any(not (each.in_value or isinstance(each, HeaderField)) for each in self.fields)

    @property
    def reads_values(self) -> bool:
        """Whether a template uses the value of records."""
        return any(each.in_value for each in self.fields)

    @cached_property
    def book(self) -> AddressBook:
        """The settings of all addresses."""
        shares = Shares.of(self.routes, self.by_address_partitions)
        return AddressBook.of_valid(self.patterns).shared(shares)

    def cache(self) -> Cache:
        """Return an empty cache."""
        return Cache(self.cache_memory_bytes)

    def rules(self, cache: Cache) -> DecisionContext:
        """Return the context of decisions: no sessions, and all output topics exist."""
        output_resolver = OutputResolver(
            _AssumedTopics(),
            "",
            Compression("zstd"),
            refused={},
            undeliverable=frozenset(),
            unanswerable=frozenset(),
        )
        return DecisionContext(
            cluster_id="",
            group_id=self.group_id,
            epochs={},
            book=self.book,
            cache=cache,
            output_resolver=output_resolver,
            input_partitions=lambda written: unrouted(
                PartitionId(repr(written), 0), "a backfill has no repartition topic"
            ),
            by_address=self.by_address,
        )

    def input_partition_of(self, source: PartitionId) -> InputPartition:
        """Return the input partition for a partition to read."""
        return InputPartition(source, self.by_topic[source.topic], 0)

    def input_partition(self, decider: PartitionId) -> InputPartition | None:
        """Return a deciding partition as an input partition, if it is one; else None."""
        return self.input_partition_of(decider) if decider.topic in self.by_topic else None

    def number(self, source: PartitionId, record: Record, headers: Headers) -> int:
        """Return the by-address partition that decides a record, or `NO_ADDRESS`."""
        try:
            key = self._keys(source).of(record, headers)
        except RejectedError:
            return NO_ADDRESS
        return _number(self.by_address, key)

    def _keys(self, source: PartitionId) -> RepartitionKeys:
        known = self._keys_of.get(source)
        if known is None:
            known = RepartitionKeys(self.input_partition_of(source), self.book)
            self._keys_of[source] = known
        return known

    @cached_property
    def _keys_of(self) -> dict[PartitionId, RepartitionKeys]:
        return {}


@lru_cache(1 << 16)
def _number(topic: RepartitionTopic, key: bytes) -> int:
    return topic.partition_of(key)
