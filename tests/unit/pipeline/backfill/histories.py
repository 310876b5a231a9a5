"""Histories: records as they stand in topics, with all that the strategies tell apart."""

from collections.abc import Mapping, Sequence
from random import Random

from ringfence_client.headers import Headers
from ringfence_pipeline.backfill.decider import SparkRecord
from ringfence_pipeline.backfill.inputs import BackfillInputs
from ringfence_service.config.model import RouteSettings
from ringfence_state.model import PartitionId
from tests.unit.pipeline.backfill.the_service import value_of

NOW_MS = 1_700_000_000_000
STRATEGIES = ("ring", "window", "audit", "sequence", "ordered")
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "ring": {"strategy": "ring", "id_cache_size": 200},
    "window": {"strategy": "window", "window_size": 300, "window_ms": 4_000},
    "audit": {"strategy": "audit", "audit_depth": 30, "audit_producers": 5},
    "sequence": {"strategy": "sequence", "publishers_max": 8},
    "ordered": {"strategy": "ordered"},
}


def inputs_of(
    settings: Mapping[str, Mapping[str, object]],
    *routes: RouteSettings,
    by_address_partitions: int = 3,
) -> BackfillInputs:
    """Routes that read the topics which they name."""
    return BackfillInputs(
        routes=routes,
        patterns=settings,
        group_id="g",
        by_address_partitions=by_address_partitions,
        cache_memory_bytes=1 << 28,
        topics=tuple(name for route in routes for name in route.inputs),
    )


def route(*inputs: str, **settings: object) -> RouteSettings:
    """A route."""
    return RouteSettings(name=inputs[0], inputs=inputs, **settings)  # type: ignore[arg-type]


def history(
    random: Random,
    strategy: str,
    sources: Sequence[PartitionId],
    count: int,
    *,
    groups: bool = True,
) -> list[SparkRecord]:
    """Records of several partitions, of which about a third repeat something."""
    offsets = dict.fromkeys(sources, 0)
    rows: list[SparkRecord] = []
    told = _Told(random, strategy, groups=groups)
    time_ms = NOW_MS - 10 * count
    for _ in range(count):
        source = random.choice(sources)
        time_ms += random.choice([0, 5, 20])
        offsets[source] += random.choice([1, 1, 1, 3])  # gaps, as transactions leave them
        timestamp_ms = time_ms + random.choice([0, 0, -3_000, 0, 50])
        key = random.choice([None, b"k", b"other"])
        headers = told.headers()
        offset = offsets[source]
        rows.append(
            SparkRecord(source, offset, timestamp_ms, key, value_of(source, offset), headers)
        )
    return rows


class _Told:
    """What records tell, one after another."""

    def __init__(self, random: Random, strategy: str, *, groups: bool) -> None:
        self._random = random
        self._groups = groups
        self._strategy = strategy
        self._count = 0
        self._numbers: dict[int, int] = {}
        self._open: list[Headers] = []

    def headers(self) -> Headers:
        """Of the next record."""
        random = self._random
        self._count += 1
        if self._open:
            return self._open.pop()
        if random.random() < 0.02:
            return []
        if random.random() < 0.01:
            return [("_DUPL_ID", b"a"), ("_AMQ_DUPL_ID", b"b")]
        if random.random() < 0.01:
            return [("_DUPL_ID", b"late"), ("_EXPIRES_AT", b"%d" % (NOW_MS - 1))]
        if self._groups and random.random() < 0.02:
            self._group()
            return self._open.pop()
        if self._strategy in {"ring", "window"}:
            return self._named()
        return self._numbered()

    def _group(self) -> None:
        size, name = self._random.choice([1, 2, 4]), b"g%d" % self._count
        parts = list(range(1, size + 1))
        self._random.shuffle(parts)
        if self._random.random() < 0.3:
            parts.append(parts[0])
        for part in parts:
            place = [("_TX_ID", name), ("_TX_SIZE", b"%d" % size), ("_TX_SEQ", b"%d" % part)]
            claim = self._named() if self._strategy in {"ring", "window"} else self._numbered()
            self._open.append([*claim, *place])

    def _named(self) -> list[tuple[str, bytes | None]]:
        random = self._random
        back = random.choice([0, 0, 1, 50, 199, 200, 201, 290, 310, 1_000])
        name = b"id-%d" % max(0, self._count - back)
        if random.random() < 0.05:
            name = name.ljust(random.choice([64, 65, 200]), b".")
        if random.random() < 0.02:
            name = b"cluster/topic/0/%d" % max(0, self._count - back)
        headers: list[tuple[str, bytes | None]] = [("_DUPL_ID", name)]
        if self._strategy == "window" and random.random() < 0.3:
            headers.append(("_PUBLISHER", b"p%d" % random.randrange(3)))
        return headers

    def _numbered(self) -> list[tuple[str, bytes | None]]:
        random = self._random
        who = random.randrange(10)
        last = self._numbers.get(who, 0)
        number = max(1, last + random.choice([1, 1, 1, 1, 0, -1, -40, 3]))
        self._numbers[who] = max(last, number)
        stream = 1 + (number > 100)
        previous = random.choice([number - 1, number - 1, last, last + 5])
        return [
            ("_PUBLISHER", b"p%d" % who),
            ("_SEQ", b"%d" % number),
            ("_SEQ_ID", b"%d" % stream),
            ("_PREV", b"%d" % max(0, previous)),
        ]
