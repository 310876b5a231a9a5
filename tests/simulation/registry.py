"""Registry: a schema registry on the simulated clock, with ids that fare differently.

What it answers depends on the time alone, and it takes its time only while a world has it do so.
Look-ups are the real ones without their thread: each process has its own, and a request is made
when somebody asks what is awaited.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ringfence_service.schemas.errors import RegistryUnavailableError, SchemaUnusableError
from ringfence_service.schemas.lookups import GRACE_S
from ringfence_service.schemas.registry import RegisteredSchema
from tests.fakes.log import FakeCluster
from tests.fakes.schema_registry import FakeSchemas, SteppedLookups, payload

KNOWN: Final = (1, 2, 3)
REFUSED: Final = 4
GARBLED: Final = 5
"""For a while from its first request on, for less than the grace."""
REGISTERED_LATE: Final = 6
UNKNOWN: Final = 7
UNUSABLE: Final = 8
SCHEMAS: Final = (*3 * KNOWN, REFUSED, GARBLED, GARBLED, REGISTERED_LATE, UNKNOWN, UNUSABLE)
"""What payloads name, as often."""
UNKNOWN_CAUSE: Final = "which the registry does not know"
CAUSES: Final[Mapping[int, str]] = {
    REFUSED: "which the registry refuses: it answered 403",
    UNKNOWN: UNKNOWN_CAUSE,
    UNUSABLE: "which cannot be used",
}
"""Why payloads with these ids have no fields, in every decision about them."""
_GARBLED_MS: Final = GRACE_S * 1000 / 3
_ORDER: Final = RegisteredSchema(
    "AVRO",
    '{"type": "record", "name": "Order", "fields": ['
    '{"name": "id", "type": "string"}, {"name": "name", "type": "string"}]}',
)


class Registry(FakeSchemas):
    """What every process asks."""

    def __init__(self, log: FakeCluster) -> None:
        super().__init__()
        self.schemas = dict.fromkeys((*KNOWN, REFUSED, GARBLED), _ORDER)
        self.unusable = {UNUSABLE: "it refers to a schema that is not there"}
        self.refused = {REFUSED: "answered 403"}
        self.takes_s = 0.0
        """How long it takes over each answer."""
        self._log = log
        self._asked_ms: dict[int, int] = {}

    def register(self) -> None:
        """Register the schema that was not there at first."""
        self.schemas[REGISTERED_LATE] = _ORDER

    def _answered(self, number: int) -> RegisteredSchema | None:
        now_ms, met = self._log.now_ms, self._log.met
        since_ms = self._asked_ms.setdefault(number, now_ms)
        if self.away:
            met["registry away"] += 1
        elif self.takes_s:
            met["registry slow"] += 1
        elif number == GARBLED and now_ms - since_ms < _GARBLED_MS:
            met["schema garbled for a while"] += 1
            raise RegistryUnavailableError(self.url, "answered with something else than JSON")
        else:
            met["schema refused"] += number == REFUSED
            met["schema registered late"] += number == REGISTERED_LATE and number in self.schemas
        try:
            return super()._answered(number)
        except SchemaUnusableError:
            met["schema unusable"] += 1
            raise


class SimulatedLookups(SteppedLookups):
    """Those of one process; an answer comes when the registry has taken its time over it."""

    def __init__(
        self, registry: Registry, monotonic_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        super().__init__(registry, monotonic_s)
        self._of, self._sleep = registry, sleep
        self._under_way: dict[int, float] = {}
        """By id when its answer comes."""

    def wait(self, number: int, seconds: float) -> None:
        """See `Lookups.wait`: time passes meanwhile."""
        self._hurry(number)
        until_s = self._monotonic_s() + seconds
        while self.awaited(number) is not None and self._monotonic_s() < until_s:
            self._sleep(0.1)

    def step(self) -> None:
        """Make the requests that are due, and take the answers that have come."""
        now_s = self._monotonic_s()
        while (number := self._plan.next(now_s)) is not None:
            self._under_way[number] = now_s + self._of.takes_s
            self._answer(now_s)
        self._answer(now_s)

    def _answer(self, now_s: float) -> None:
        for number in [each for each, due_s in self._under_way.items() if due_s <= now_s]:
            del self._under_way[number]
            asyncio.run(self._ask(self._of, number))


def order(schema: int, identifier: bytes, name: bytes) -> bytes:
    """A payload with an id; each of the two has fewer than 64 bytes."""
    return payload(schema, b"".join(bytes([2 * len(each)]) + each for each in (identifier, name)))
