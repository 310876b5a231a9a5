"""Scene: what the real loop makes of a trace, on a cluster of its own.

Each record has a value of its own, so that its fate is read back from the topics and nowhere else.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ringfence_client.headers import EPOCH, MARK, DeadLetter, Reason
from ringfence_service.config.addresses import AddressBook
from ringfence_service.config.model import RouteSettings
from ringfence_service.processor.loop import Loop
from ringfence_service.queries.addresses import AddressAnswer, AddressQuery
from ringfence_service.queries.ids import IdAnswer, IdQuery
from ringfence_service.queries.publishers import PublisherAnswer, PublisherQuery, SetSequence
from tests.cases.case import MANNERS, Manner, Settings
from tests.cases.trace import ADDRESS, Headers, headers_of, noisy, words
from tests.fakes.clients import FakeClients
from tests.fakes.log import START_MS
from tests.fakes.partition import Record
from tests.simulation.disk import Disk
from tests.support.helpers import answer, answered, some
from tests.support.living import LOG, ROUTE, Living, registry_of, turn_until_running

INPUT: Final = "orders"
BY_ADDRESS: Final = replace(ROUTE, address=f"{{header:{ADDRESS}}}")
"""A route whose records name their address."""

_OTHER: Final = ("g.changelog.", "g.acks", "g.config")
"""Topics in which no record of the input ends."""

_SHORT: Final = {str(Reason.DUPLICATE): "dup", str(Reason.DUPLICATE_IN_GROUP): "tx"}

_SETTLED_WITHIN: Final = 200
_STEPS_MAX: Final = 10_000_000


class Scene(Living):
    """An instance on a cluster of its own, which may die and restart."""

    def __init__(
        self,
        settings: Settings | None = None,
        manner: Manner = MANNERS["in one transaction"],
        *,
        addresses: Mapping[str, Settings] | None = None,
        route: RouteSettings = ROUTE,
        noise: random.Random | None = None,
        **service: object,
    ) -> None:
        """`settings` are for every address, unless `addresses` tells them apart."""
        self._clients: list[FakeClients] = []
        patterns = {"#": settings or {}} if addresses is None else addresses
        service = {"batch_records_max": manner.records_max, **service}
        super().__init__(route, patterns, **service)  # type: ignore[arg-type]  # by name
        self.faults.steps_max = _STEPS_MAX
        self._manner = manner
        self._noise = noise
        self._living: Loop | None = None
        self._instance = "0"
        self._time_ms: int | None = None
        self._sent = self._deaths = 0

    # What happens.

    def play(self, trace: str) -> list[str]:
        """Let it all happen, to the end; the fate of each record."""
        first = self._sent
        for word in words(trace):
            if word == "|":
                self.kill()
            elif word.startswith("@"):
                self._time_ms = START_MS + int(word[1:]) * 1000
                self.cluster.now_ms = max(self.cluster.now_ms, self._time_ms)
            else:
                self.put(headers_of(word))
                if self._manner.dies:
                    self.kill()
        self.settle()
        return self.told()[first:]

    def play_in_session(self, epoch: int, trace: str) -> list[str]:
        """Let records of a session happen."""
        first = self._sent
        for word in words(trace):
            self.put([*headers_of(word), (EPOCH, b"%d" % epoch)])
        self.settle()
        return self.told()[first:]

    def put(self, headers: Headers, size: int = 0) -> int:
        """Write one record to the input; the number that its value tells."""
        number, self._sent = self._sent, self._sent + 1
        value = (b"%d" % number).ljust(size, b".")
        headers = headers if self._noise is None else noisy(headers, self._noise)
        time_ms = self.cluster.now_ms if self._time_ms is None else self._time_ms
        self.cluster.write(INPUT, 0, Record(None, value, headers, time_ms))
        return number

    def settle(self) -> None:
        """Until everything is decided."""
        loop = self.life
        log = some(self.cluster.log(INPUT, 0))
        for _ in range(_SETTLED_WITHIN + log.end):
            if (self.committed() or 0) == log.end:
                return
            loop.turn()
        raise AssertionError("the input is not read to its end")

    def wait(self, seconds: float) -> None:
        """Let time pass, and the loop see that it has."""
        self.settle()
        self.life.turn()
        self.cluster.wait(seconds)
        self.life.turn()

    def kill(self) -> None:
        """When everything is decided."""
        self.settle()
        self.lose_process()
        self._deaths += 1
        if not self._manner.keeps_disk and self._deaths % self._manner.loses_disk_each == 0:
            self.lose_disk()

    def lose_process(self) -> None:
        """As kill -9 does, at this moment."""
        self._clients[-1].kill()
        self._living = None

    def lose_disk(self) -> None:
        """What stood in the state folder is gone."""
        assert isinstance(self.stores, Disk)
        self.stores.lose()

    def lose_machine(self) -> None:
        """Process and disk are gone; another instance takes over when the group has noticed."""
        self.settle()
        self.lose_process()
        self.lose_disk()
        self.cluster.wait(60)
        self._instance += "1"

    def log_on(self, publisher: str, user: str = "user") -> int:
        """Open a session for a publisher; its epoch."""
        return registry_of(self, self.life).open(publisher, user).epoch

    def set_number(self, publisher: str, number: int, stream: int | None = None) -> None:
        """As an administrator does."""
        answer(SetSequence(publisher, INPUT, number, stream), self.life)

    def configure(self, addresses: Mapping[str, Settings]) -> None:
        """The process ends and restarts with other settings of addresses."""
        self.kill()
        self.config = replace(self.config, addresses=AddressBook.of(addresses))

    @property
    def life(self) -> Loop:
        """The loop that lives now, or a new one."""
        if self._living is None:
            self._living = self.loop(self._instance)
            turn_until_running(self._living)
        return self._living

    def clients(self, instance: str = "0") -> FakeClients:
        self._clients.append(super().clients(instance))
        return self._clients[-1]

    # What came of it.

    def told(self) -> list[str]:
        """The fate of every record ever sent."""
        found: list[list[str]] = [[] for _ in range(self._sent)]
        for name, topic in self.cluster.logs.items():
            if name == INPUT or name.startswith(_OTHER):
                continue
            for log in topic.partitions:
                for record in self.cluster.records(name, log.number):
                    found[number_of(record)].append(_fate(record))
        return ["+".join(each) or "none" for each in found]

    def letters(self, topic: str = "orders.dlq") -> list[dict[str, str]]:
        """What the dead letters tell, by the name of the header."""
        ours = {str(name) for name in DeadLetter}
        return [
            {name: (value or b"").decode() for name, value in record.headers or [] if name in ours}
            for record in self.cluster.records(topic)
        ]

    def address(self, name: str = INPUT) -> AddressAnswer:
        """What the loop tells of an address."""
        return answered(AddressAnswer, AddressQuery(name), self.life)

    def held(self, name: str = INPUT) -> int:
        """How many ids or publishers an address holds."""
        return sum(partition.ids_held or 0 for partition in self.address(name).partitions)

    def look_up(self, identifier: str, name: str = INPUT) -> IdAnswer:
        """What the loop tells of an id."""
        return answered(IdAnswer, IdQuery(name, identifier.encode()), self.life)

    def last_number(self, publisher: str) -> int | None:
        """How far the loop tells that a publisher has come, on one address at most."""
        told = answered(PublisherAnswer, PublisherQuery(publisher), self.life)
        numbers: list[int | None] = [place.number for place in told.positions]
        (number,) = numbers or [None]
        return number

    def acknowledged(self) -> list[tuple[str, int]]:
        """The acknowledgements sent to publishers, in order."""
        found = []
        for record in self.cluster.records("g.acks"):
            _, publisher = json.loads(record.key or b"")
            found.append((publisher, json.loads(record.value or b"")["sequence"]))
        return found

    def stored(self) -> int:
        """How many entries the changelog holds of all that is remembered, compacted."""
        newest: dict[bytes | None, bytes | None] = {}
        for record in self.cluster.records(*LOG):
            newest[record.key] = record.value
        return sum(value is not None for value in newest.values())


def number_of(record: Record) -> int:
    """Which of the records it was."""
    return int((record.value or b"").rstrip(b"."))


def _fate(record: Record) -> str:
    headers = dict(record.headers or [])
    reason = (headers.get(DeadLetter.REASON) or b"").decode()
    if reason:
        return _SHORT.get(reason, reason)
    return "mark" if MARK in headers else "in"
