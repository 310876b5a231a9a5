"""World: one seeded run, from the first record to the last, and then what must hold of it."""

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from confluent_kafka import KafkaException

from ringfence_client.headers import internal
from ringfence_service.config.tasks import Hop, Task, consumer_group
from ringfence_service.dedup.record import KnownId
from ringfence_service.errors import ExitError
from ringfence_service.kafka.topics import by_address, config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.sessions import SessionRecord, record_of
from ringfence_service.metadata.topic import MetadataWriter
from ringfence_service.queries.ids import ClearAddress, ForgetId, ImportIds
from ringfence_service.schemas.documents import UNKNOWN_S
from ringfence_service.schemas.lookups import GRACE_S
from ringfence_state.model import PartitionId
from tests.fakes.clients import FakeClients
from tests.fakes.log import FakeCluster
from tests.fakes.partition import Entry, Fate, Record
from tests.simulation.coverage import struck
from tests.simulation.instance import FakeClock, Instance
from tests.simulation.invariants import Broken, check, check_disk
from tests.simulation.knobs import turned
from tests.simulation.model import Change, Place
from tests.simulation.patience import Patience
from tests.simulation.registry import REGISTERED_LATE, Registry
from tests.simulation.scenario import (
    AWAITED,
    GROUP,
    OUTPUT_LIMIT_BYTES,
    TOMBSTONES_KEPT_MS,
    Scenario,
    Sent,
    scenario,
)
from tests.simulation.setting import Setting
from tests.simulation.trouble import FAILURES, FENCED, SLOW, Crash, SeededChance

ROUNDS_MAX = 600
HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * 60 * 60 * 1000
SHORT_GAP_MS = 5_000


class World:
    """A cluster, the instances on it, and the trouble between them."""

    def __init__(self, case: Scenario) -> None:
        self.case = case
        self.chance = random.Random(case.seed + 1)
        self._clocks = random.Random(case.seed + 2)
        self.freedom = SeededChance(self.chance, case)
        self.log = FakeCluster(self.freedom, self._step)
        self.log.names_records = case.names_records
        self.sent: dict[tuple[str, int, int], Sent] = {}
        self._unsent = list(case.sent)
        late = [each for each in case.sent if each.schema == REGISTERED_LATE]
        self._kept_back = late[-1:]
        """What is sent last of all, when its schema has been registered for a while."""
        for each in self._kept_back:
            self._unsent.remove(each)
        self.last: Place | None = None
        """Where that stands."""
        self.registry = Registry(self.log)
        self._missing = {f"{AWAITED}.{end}" for end in case.awaits} - {f"{AWAITED}.schemas"}
        """Topics that do not exist yet, for which one route waits."""
        self._awaiting = random.Random(case.seed + 16)
        self._waiting = {each.record.value for each in case.sent if each.source.topic == AWAITED}
        self.struck = 0
        """How many faults have struck."""
        self._patience = Patience(self)
        self._refused = {each.record.value for each in case.sent if each.refused}
        self._steps = 0
        self._calm = False
        self._acting: list[Instance] = []
        self.instances = [
            Instance(str(n), case, self.log, self.registry, Task(0, hop))
            for n in range(case.instances)
            for hop in case.hops
        ]
        self._opened: list[tuple[int, str, int]] = []
        self._twin: Instance | None = None
        self._rarely = random.Random(case.seed + 8)
        self._days = random.Random(case.seed + 13)
        self.changes: dict[str, Change] = {}
        """What an administrator wanted, by the notes of the offsets that were committed for it."""
        self.setting = Setting(case, self.log)
        self.met = self.log.met
        self._topics()

    def simulated(self) -> Counter[str]:
        """Run it with the sizes that it has drawn; returns what it met."""
        with turned(self.case.knobs, self.log):
            self.run()
        return self.met

    def run(self) -> None:
        """Let it all happen, then let it settle, then judge."""
        while self._unsent or self._steps < max(self.case.crashes | self.case.freezes):
            self._round()
            if self._steps > 20_000:
                raise Broken("I12", "the run does not come to an end")
        self._settle()
        for instance in self.instances:
            check_disk(self.log, instance.disk)
        check(self)

    def _round(self) -> None:
        chance = self.chance
        self._publish(chance.randint(0, 6) // (3 if self.case.old_backups else 1))
        if self.case.late_output and chance.random() < 0.1:
            self._outputs()
        if chance.random() < 0.1:
            # A follower of the metadata topic lags by less time than a broker takes to compact it.
            self.log.compact(TOMBSTONES_KEPT_MS, but=(config_topic(GROUP),))
        if chance.random() < 0.05:
            self._arrival()
        if self.case.sessions and chance.random() < 0.05:
            self._open_session()
        self.setting.perhaps()
        self._perhaps_rare()
        if chance.random() < 0.3:
            self.log.wait(chance.random() * 2)
        instance = chance.choice(self.instances)
        if self.case.sets_clocks and self._clocks.random() < 0.1:
            instance.clock.set_ahead_ms = self._clocks.choice((-HOUR_MS, 0, HOUR_MS))
        if chance.random() < 0.1:
            instance.disk.back_up()
        if instance.wanted:
            self._act(instance)

    def _perhaps_rare(self) -> None:
        if self.case.awaits:
            self._perhaps_await()
        if self.case.short_ends and self._rarely.random() < 0.05:
            self._hide_an_end()
        if self.case.is_administered and self._rarely.random() < 0.1:
            self._administer()
        if self.case.twins:
            self._perhaps_twin()
        if self.case.rolls and self._rarely.random() < 0.03:
            self._roll(self._rarely.choice(self.instances).name)
        if self.case.old_backups and self._days.random() < 0.05:
            self._be_away(self._days.choice(self.instances))

    def _perhaps_await(self) -> None:
        """The registry goes and comes, and what is missing is made at last."""
        chance, registry = self._awaiting, self.registry
        if chance.random() < 0.1:
            registry.away = chance.choice(("", "", "does not answer", "answered 503"))
        if chance.random() < 0.1:
            registry.takes_s = chance.choice((0.0, 0.0, 0.5, 15.0))
        if chance.random() < 0.02:
            registry.register()
        if chance.random() < 0.02 and not self.case.late_output:
            self._missing -= {chance.choice(sorted(self._missing) or [""])}
            self._outputs()

    def awaits(self, source: PartitionId, offset: int) -> bool:
        """Whether a record is of the route that awaits something."""
        log = self.log.log(*source)
        assert log is not None  # there is a record
        record = log.archive[offset].record
        return record is not None and record.value in self._waiting

    def readable(self, source: PartitionId, start: int) -> list[int]:
        """Return the offsets of the records from one on that a reader gets now."""
        log = self.log.log(*source)
        entries = log.archive[start : log.last_stable] if log else []
        return [entry.offset for entry in entries if _is_record(entry)]

    def _open_session(self) -> None:
        """A publisher takes its name, or takes it over."""
        if config_topic(GROUP) not in self.log.logs:
            return
        publisher, epochs = self.chance.choice(("P", "Q")), list[int]()

        def change(settings: MetadataImage) -> MetadataRecord:
            last = settings.sessions.by_publisher.get(publisher)
            epoch = 1 if last is None else last.epoch + 1
            epochs.append(epoch)
            return record_of(publisher, SessionRecord(epoch, "", 0))

        clock = FakeClock(self.log)
        writer = MetadataWriter(
            lambda: FakeClients(self.log, GROUP, "admin"), config_topic(GROUP), clock
        )
        with contextlib.suppress(KafkaException):
            self._opened.append((writer.write(change), publisher, epochs[-1]))

    def epochs_at(self, revision: int) -> dict[str, int]:
        """Return the sessions that were open at a revision."""
        return {name: epoch for written, name, epoch in self._opened if written <= revision}

    def _hide_an_end(self) -> None:
        """A broker that has just started tells less than it has, for some seconds."""
        names = [name for name in self.log.logs if "changelog" in name]
        names += [*self.case.inputs, *({by_address(GROUP)} & self.log.logs.keys())]
        if names:
            chance = self._rarely
            log = chance.choice(self.log.logs[chance.choice(sorted(names))].partitions)
            source, lasts_ms = PartitionId(log.topic, log.number), chance.randint(100, 8_000)
            _, last_ms = self.log.hidden.get(source, (0, 0))
            if self.log.now_ms > last_ms + SHORT_GAP_MS:  # else one would go over into the next
                self.log.hidden[source] = (chance.randint(1, 10), self.log.now_ms + lasts_ms)

    def _administer(self) -> None:
        """Somebody imports ids, has one forgotten, or clears an address, wherever it is decided."""
        chance = self._rarely
        deciding = [each for each in self.instances if each.loop is not None and each.loop.decides]
        if not deciding:
            return
        address = chance.choice(self.case.addresses)
        wanted = (b"id%d" % chance.randrange(20) for _ in range(chance.randint(1, 4)))
        ids = tuple(KnownId(name, chance.choice((None, 7))) for name in wanted)
        source = PartitionId(
            chance.choice(self.case.topics), chance.randrange(self.case.partitions)
        )
        query: Change = chance.choice(
            (
                ImportIds(address, *source, ids),
                ForgetId(address, ids[0].identifier),
                ForgetId(address, ids[0].identifier),
                ClearAddress(address),
            )
        )
        note = f"change {len(self.changes)}"
        self.changes[note] = query
        instance = chance.choice(deciding)
        self._have(instance, lambda: self._changed(instance, query), note)

    def _roll(self, name: str) -> None:
        """All processes of an instance end, and the next ones have the newer file."""
        for instance in self.instances:
            if instance.name == name and not instance.is_newer:
                self._stop(instance)
                instance.wanted = instance.is_newer = True
                self.met["newer files"] += 1

    def _perhaps_twin(self) -> None:
        """Another process bears the name of one: they fence each other until one of them ends."""
        if self._twin is not None:
            if self._rarely.random() < 0.1:
                self._twin.kill()
                self.instances.remove(self._twin)
                self._twin = None
        elif self._rarely.random() < 0.02:
            rival = self._rarely.choice(self.instances)
            twin = self._twin = rival.twin()
            self.instances.append(twin)
            self.met["twins"] += 1

    def _be_away(self, instance: Instance) -> None:
        """A machine is gone for days, and comes back with a disk that was older even then.

        Compaction has passed what was deleted since, and may have taken the tombstones by then.
        """
        instance.kill()
        self.log.compact(TOMBSTONES_KEPT_MS)
        self.log.wait(self._days.choice((4, 9, 9)) * DAY_MS / 1000)
        self.log.compact(TOMBSTONES_KEPT_MS)
        instance.disk.roll_back()
        self.met["old backups"] += 1

    def _stop(self, instance: Instance) -> None:
        self._acting.append(instance)
        instance.stop()
        self._acting.pop()

    def _changed(self, instance: Instance, query: Change) -> None:
        if instance.ask(query) is not None:
            self.met["changes over REST"] += 1

    def _arrival(self) -> None:
        """One more instance stops, or starts again."""
        instance = self.chance.choice(self.instances)
        if instance.wanted and self.chance.random() < 0.5:
            self._stop(instance)
        elif not instance.wanted:
            if self.chance.random() < 0.2:
                self.log.wait(self.chance.choice((4, 9)) * DAY_MS / 1000)
                self.log.compact(TOMBSTONES_KEPT_MS)
            instance.wanted = True

    def _act(self, instance: Instance) -> None:
        before = self._patience.moment(instance)
        self._have(instance, instance.turn)
        self._patience.judge(before, instance)

    def _have(self, instance: Instance, act: Callable[[], None], note: str = "") -> None:
        """Have an instance do something; what offsets are sent for is noted."""
        life, before = instance.loop, self.log.note
        self._acting.append(instance)
        self.log.note = note
        self.log.aged.clear()
        try:
            act()
        except ExitError as end:
            raise Broken("I13", f"the service gave up: {end}") from end
        finally:
            self._acting.pop()
            self.log.note = before
        if instance.doomed and life is not None and instance.loop is life:
            raise Broken("I14", "a life goes on that has not applied what it has committed")
        instance.doomed = False
        if life is not None and self._loading_alone_takes_time and instance.label in self.log.aged:
            raise Broken("I15", "a transaction was too old for what was loaded in it")
        if life is not None and not instance.runs:
            check_disk(self.log, instance.disk)
            self._disk_after_crash(instance)

    @property
    def _loading_alone_takes_time(self) -> bool:
        """Whether nothing else makes a transaction old."""
        case = self.case
        others = (case.slowness, case.trouble, case.freezes, case.twins, case.ghosts)
        return not any(others)

    def _disk_after_crash(self, instance: Instance) -> None:
        fate = self.chance.random()
        if fate < 0.15:
            instance.disk.lose()
        elif fate < 0.3:
            instance.disk.roll_back()
        elif fate < 0.4:
            instance.disk.damage(self.chance)

    def _step(self, name: str) -> None:
        """Somebody does something: here processes die, sleep, or are refused."""
        if not self._acting:
            return
        instance = self._acting[-1]
        if instance.dead:
            raise Crash
        if self._calm:
            return
        self._steps += 1
        if self._steps in self.case.crashes:
            instance.dead = True
            self._strike(name, "killed")
            raise Crash
        if self._steps in self.case.freezes:
            self._strike(name, "stopped")
            self._freeze(instance)
        if self.case.slowness and name in SLOW and self.chance.random() < self.case.slowness:
            self._strike(name, "slow")
            self.log.wait(self.chance.choice((1, 4, 11)))
        failures = FAILURES.get(name)
        if failures and self.freedom.trouble and self.chance.random() < self.freedom.trouble:
            failure = self.chance.choice(failures)
            self._strike(name, failure.kind)
            instance.has_rival = instance.has_rival or failure is FENCED
            if name == "applying":
                instance.doomed = True
            raise failure.error()

    def _strike(self, step: str, kind: str) -> None:
        self.struck += 1
        self.met[struck(step, kind)] += 1

    def _freeze(self, frozen: Instance) -> None:
        """SIGSTOP: the others go on for a while, long enough for any timeout or not."""
        others = [i for i in self.instances if i not in self._acting and i.wanted]
        if sys.exception() is not None:  # handled by the frozen one: the others would see it too
            others = []
        frozen.freeze()
        for _ in range(self.chance.randint(1, 40)):
            self.log.wait(self.chance.random() * 2)
            if others:
                self._act(self.chance.choice(others))
        frozen.thaw()

    def _be_calm(self) -> None:
        self._calm, self.freedom.trouble, self.freedom.ghosts = True, 0.0, 0.0

    def _settle(self) -> None:
        """No more trouble: everything that was sent must now get through."""
        self._be_calm()
        if self._twin is not None:
            self._twin.kill()
            self.instances.remove(self._twin)
            self._twin = None
        self._outputs()
        self.setting.settle()
        wanted = [instance.wanted for instance in self.instances]
        for instance in self.instances if self.case.rolls else ():
            self._roll(instance.name)
        for instance, was_wanted in zip(self.instances, wanted, strict=True):
            instance.wanted = was_wanted
        survivors = [i for i in self.instances if i.wanted]
        for hop in self.case.hops:
            mine = [i for i in self.instances if i.hop is hop]
            if not any(i.wanted for i in mine):
                survivors.append(mine[0])
        if self.case.awaits:
            self._go_on(survivors, self._is_clean_done)
            if self._awaiting.random() < 0.3:
                until_ms = self.log.now_ms + 2_000 * GRACE_S
                self._go_on(survivors, lambda: self.log.now_ms >= until_ms)
            self._repair()
        self._go_on(survivors, self._done)
        if self._kept_back:
            self.log.wait(UNKNOWN_S + 1)
            self._unsent, self._kept_back = self._kept_back, []
            self._publish(1)
            self.last = list(self.sent)[-1]
            self._go_on(survivors, self._done)
        self.log.wait(60)
        while any(producing.markers for producing in self.log.producing.values()):
            self.log.tick()

    def _go_on(self, survivors: list[Instance], is_done: Callable[[], bool]) -> None:
        for _ in range(ROUNDS_MAX):
            if is_done():
                return
            for instance in survivors:
                self._act(instance)
            self.log.wait(0.2)
        raise Broken("I12", "the inputs are not read to their end")

    def _repair(self) -> None:
        """All that one route awaits is there at last, but for what the registry refuses."""
        self.registry.away, self.registry.takes_s = "", 0.0
        self.registry.register()
        self._missing.clear()
        self._outputs()

    def _is_clean_done(self) -> bool:
        """Whether every partition is read to its end of which no record awaits anything."""
        return self._done(
            lambda source, start: any(
                self.awaits(source, offset) for offset in self.readable(source, start)
            )
        )

    def _done(
        self, may_wait: Callable[[PartitionId, int], bool] = lambda _source, _start: False
    ) -> bool:
        """Whether the inputs are read to their end, but for partitions that may wait."""
        for hop in self.case.hops:
            committed = self.log.group(consumer_group(GROUP, hop)).committed
            topics = self.case.inputs if hop is Hop.INPUTS else (by_address(GROUP),)
            for log in (log for name in topics for log in self.log.logs[name].partitions):
                found = committed.get(PartitionId(log.topic, log.number))
                reached = found.offset if found else 0
                if may_wait(PartitionId(log.topic, log.number), reached):
                    continue
                if found and hop is self.case.hops[-1] and not self.setting.is_settled(found):
                    return False
                if any(_is_record(entry) for entry in log.archive[max(reached, log.start) :]):
                    return False
        return True

    def _decide_half(self) -> list[Sent]:
        """Have half of what is sent decided, and return the rest of it."""
        rest = self._unsent[len(self._unsent) // 2 :]
        del self._unsent[len(self._unsent) // 2 :]
        while self._unsent:
            self._publish(5)
        self._settle()
        return rest

    def _publish(self, count: int) -> None:
        for sent in self._unsent[:count]:
            offset = self.log.write(*sent.source, sent.record)
            self.sent[sent.source.topic, sent.source.partition, offset] = sent
        del self._unsent[:count]

    def _topics(self) -> None:
        for name in self.case.inputs:
            self.log.create_topic(name, self.case.partitions, record_bytes_max=100_000)
        if not self.case.late_output:
            self._outputs()

    def _outputs(self) -> None:
        for name in self.case.inputs:
            if f"{name}.unique" not in self.log.logs.keys() | self._missing:
                self.log.create_topic(
                    f"{name}.unique",
                    self.case.output_partitions,
                    record_bytes_max=self.case.output_bytes_max,
                    limit_bytes=OUTPUT_LIMIT_BYTES,
                )
                self.log.logs[f"{name}.unique"] = replace(
                    self.log.logs[f"{name}.unique"], refuses=self._refuses
                )
            if f"{name}.dlq" not in self.log.logs.keys() | self._missing:
                self.log.create_topic(f"{name}.dlq", self.case.partitions)

    def _refuses(self, record: Record) -> bool:
        """Whether a record is refused on an output; its value names it."""
        self.met["refused records"] += record.value in self._refused
        return record.value in self._refused

    @property
    def places(self) -> dict[bytes | None, tuple[str, int, int]]:
        """Return where each record stands in its input, by its value."""
        return {sent.record.value: place for place, sent in self.sent.items()}

    @property
    def fallback(self) -> str:
        """Return the topic of last resort."""
        return internal("sim", "dead-letters")


def _is_record(entry: Entry) -> bool:
    """Whether it is one that a reader gets, if only once its marker is there."""
    aborted = entry.transaction is not None and entry.transaction.fate is Fate.ABORTED
    return entry.record is not None and not aborted


def simulate(seed: int) -> Counter[str]:
    """Run one seed and return what it met; raises Broken when an invariant does not hold."""
    return World(scenario(seed)).simulated()
