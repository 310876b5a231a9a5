"""Redriving: a seeded run in which dead letters are redriven while everything goes wrong.

Senders stand in the place of coordinators: there may be two at once, they forget what they knew,
are not answered, and go on when all is over. What they know beyond a crash is what was written, and
what the owners tell.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from confluent_kafka import KafkaException

from ringfence_client.headers import Reason
from ringfence_service.dead_letters.owners import DeadLetterOwners
from ringfence_service.dead_letters.reader import DeadLetterReader
from ringfence_service.dead_letters.redrive_steps import RedriveBatcher, RedriveStep, halves
from ringfence_service.dedup.dead_letter import MODES
from ringfence_service.kafka.topics import by_address, config_topic
from ringfence_service.metadata.image import MetadataImage
from ringfence_service.metadata.record import MetadataRecord
from ringfence_service.metadata.redrive_job import DeadLetterRange, RedriveJob
from ringfence_service.metadata.topic import MetadataWriter
from ringfence_service.queries.dead_letters import (
    DeadLetterFilter,
    DeadLetterPosition,
    DeadLetterView,
    RedriveRequest,
    view_of,
)
from ringfence_service.queries.ids import ChangeAnswer
from ringfence_service.queries.redrives import (
    CheckpointsAnswer,
    CheckpointsQuery,
    DecideDeadLetters,
    DeleteCheckpoints,
    PartitionCheckpoint,
    RedriveAnswer,
)
from ringfence_service.queries.registry import Answer, Query
from ringfence_state.model import PartitionId
from tests.fakes.admin import FakeAdmin
from tests.fakes.clients import FakeClients
from tests.fakes.partition import committed_records
from tests.simulation.instance import FakeClock, Instance
from tests.simulation.invariants import Broken, check_disk
from tests.simulation.scenario import (
    GROUP,
    HEADERS_MAX,
    OUTPUT_LIMIT_BYTES,
    Scenario,
    Sent,
    unstamped,
)
from tests.simulation.world import World

NAME = "1-x"
ROUNDS_MAX = 4_000
ROUNDS_AFTER = 60
OF_GROUPS = frozenset({"_TX_ID", "_TX_SIZE", "_TX_SEQ"})

T = TypeVar("T")


def redriving(seed: int) -> Scenario:
    """As the seed has it, but all ids are remembered, and nothing waits for others."""
    case = unstamped(seed)
    return replace(
        case,
        sent=tuple(_alone(sent) for sent in case.sent if sent.source.topic in case.topics),
        is_set=False,
        rolls=False,
        capacities=(dict.fromkeys(case.addresses, 1_000),),
        on_duplicate="dead_letter",
        strategy="ring",
        audited=False,
        sessions=False,
        late_output=False,
        sets_clocks=False,
        administers=False,
        crashes=frozenset(),
        freezes=frozenset(),
    )


def _lagging(case: Scenario) -> Scenario:
    """Where the seed says so, one of two instances hears late what is set."""
    if random.Random(case.seed + 14).random() < 0.6:
        return case
    return replace(case, late_settings=True, instances=2, old_backups=False)


def _alone(sent: Sent) -> Sent:
    """The same without its group, and without the headers that are too many for one."""
    headers = [each for each in sent.record.headers or [] if each[0] not in OF_GROUPS]
    if len(headers) > HEADERS_MAX:
        headers = [each for each in headers if each[0]]
    return replace(sent, member=None, record=sent.record._replace(headers=headers))


class Outcome(NamedTuple):
    """What is to become of a letter: how often it comes out, and as a letter, once more."""

    outputs: int
    letters: int
    counted: str


class Sender:
    """One that believes it is its turn."""

    def __init__(self, world: "RedriveWorld") -> None:
        self._world = world
        self._chance = world.chance
        self._drive: RedriveBatcher | None = None
        self._step: RedriveStep | None = None
        self._waiting: list[deque[DecideDeadLetters]] = []
        self.is_done = False

    def act(self) -> None:
        """Do the next thing there is to do."""
        with suppress(KafkaException):
            if self._drive is None:
                self._take_up()
            elif self._step is None:
                self._take_step(self._drive)
            elif any(self._waiting):
                self._send(self._drive)
            else:
                self._advance(self._drive, self._step)

    def forget(self) -> None:
        """Crash: all that is left is what was written."""
        self._drive, self._step, self.is_done = None, None, False

    def _take_up(self) -> None:
        marks = self._world.marks()
        if marks is not None and self._world.job.is_running:
            reader = DeadLetterReader(FakeClients(self._world.log, GROUP, "reader"))
            self._drive = RedriveBatcher(self._world.job, self._world.ways().owner, reader, marks)

    def _take_step(self, drive: RedriveBatcher) -> None:
        if self.is_done:
            return
        try:
            self._step = drive.next(self._chance.choice((1, 2, 5, 100)))
        except KafkaException:
            self.forget()
            return
        self._waiting = [deque(commands) for commands in self._step.commands]

    def _send(self, drive: RedriveBatcher) -> None:
        """To any owner, what comes next for it."""
        queue = self._chance.choice([each for each in self._waiting if each])
        self._world.commands.append(queue[0])
        told = self._world.ask(queue[0])
        if self._chance.random() < 0.1 or not isinstance(told, RedriveAnswer):
            return  # nobody answers, or the answer is lost
        command = queue.popleft()
        if told.result == "refused":
            queue.extendleft(reversed(halves(command)))
        if told.result == "ended":
            self.is_done, self._step = True, None
            return
        drive.answered(told)

    def _advance(self, drive: RedriveBatcher, step: RedriveStep) -> None:
        drive.advance(step)
        self._step = None
        if step.is_last:
            self._world.write(drive.job.ended("done", 2))
            self.is_done = True
        elif self._chance.random() < 0.3:
            self._world.write(drive.job)


class RedriveWorld(World):
    """A run in which one or two senders redrive dead letters under faults."""

    def __init__(self, case: Scenario) -> None:
        super().__init__(case)
        self.mode = self.chance.choice(MODES)
        self.limit = self.chance.choice((None, None, 3))
        self.job: RedriveJob
        self.before: list[DeadLetterView] = []
        self.commands: list[DecideDeadLetters] = []
        """All that were sent."""
        self._slow: Instance | None = None
        """One that has a bad connection to the broker of the metadata topic."""

    def run(self) -> None:
        """Have some records decided, redrive what was refused, and see what became of it."""
        rest = self._decide_half()
        self.before = self.letters()
        self._order()
        self._unsent = rest
        self._start_trouble()
        senders = [Sender(self) for _ in range(self.chance.choice((1, 2, 2)))]
        late = self._redrive(senders)
        self._outlive()
        while self._unsent:
            self._publish(5)
        self._settle()
        self._clear()
        self._settle_late(late)
        for instance in self.instances:
            check_disk(self.log, instance.disk)
        self._check()

    # The way of a redrive.

    def _order(self) -> None:
        spans = [
            DeadLetterRange(topic, log.number, 0, log.end)
            for topic in self._letter_topics()
            for log in self.log.logs[topic].partitions
        ]
        order = RedriveRequest(self.mode, DeadLetterFilter(), limit=self.limit)
        self.job = RedriveJob(NAME, order, tuple(spans), 1, 1)
        self.write(self.job)

    def _start_trouble(self) -> None:
        first = self._steps
        steps = [first + step for step in self.chance.sample(range(1_500), 6)]
        self.case = replace(self.case, crashes=frozenset(steps[:4]), freezes=frozenset(steps[4:]))
        self._calm, self.freedom.trouble = False, self.chance.choice((0.0, 0.01, 0.05))
        self.freedom.ghosts = self.case.ghosts
        if self.case.late_settings:
            mine = [each for each in self.instances if each.hop is self.case.hops[-1]]
            self._slow = self.chance.choice(mine)

    def _redrive(self, senders: list[Sender]) -> Sender:
        """Until one of them is done; gives one that may not have heard of it."""
        for number in range(ROUNDS_MAX):
            if number > ROUNDS_MAX // 2:
                self._be_calm()
            self._round()
            sender = self.chance.choice(senders)
            sender.act()
            if self.chance.random() < 0.02:
                sender.forget()
            if not self.job.is_running:
                return senders[0]
        raise Broken("redrive", "it does not come to an end")

    def _outlive(self) -> None:
        """The marks are deleted while partitions move on, and long delayed commands arrive.

        The owner of a partition by then may not know of the end, and finds no mark.
        """
        if self._slow is not None:
            # It asks thousands of times in vain, and would die at one of them.
            self.case = replace(self.case, crashes=frozenset(), freezes=frozenset())
        for _ in range(ROUNDS_AFTER):
            self._round()
            instance = self.chance.choice(self.instances)
            told = self._asked(instance, DeleteCheckpoints(NAME)) if instance.runs else None
            has_removed = isinstance(told, ChangeAnswer) and told.ids > 0
            if has_removed and instance.runs and self.chance.random() < 0.8:
                self._stop(instance)
            if self.commands:
                self.ask(self.chance.choice(self.commands))

    def _clear(self) -> None:
        """Have all marks removed, once the end is known."""
        for _ in range(ROUNDS_MAX):
            for instance in self.instances:
                if instance.runs:
                    self._asked(instance, DeleteCheckpoints(NAME))
                self._act(instance)
            if self.marks() == ():
                return
            self.log.wait(0.2)
        raise Broken("redrive", "its marks are not removed")

    def _settle_late(self, late: Sender) -> None:
        """Who has not heard of the end goes on; everything it asks for comes too late."""
        for _ in range(50):
            late.act()
            for instance in self.instances:
                self._act(instance)

    def write(self, job: RedriveJob) -> None:
        """As a coordinator does: what has become of the job stands."""

        def change(settings: MetadataImage) -> MetadataRecord:
            now = settings.redrives.by_id.get(NAME)
            has_ended = now is not None and not now.is_running
            return (now if now is not None and has_ended else job).record

        clock = FakeClock(self.log)
        writer = MetadataWriter(
            lambda: FakeClients(self.log, GROUP, "admin"), config_topic(GROUP), clock
        )
        writer.write(change)
        if not hasattr(self, "job") or self.job.is_running:
            self.job = job

    def _have(self, instance: Instance, act: Callable[[], None], note: str = "") -> None:
        """As ever; the slow instance waits for what is set."""
        before, is_slow = self.freedom.slow_topic, instance is self._slow and not self._calm
        self.freedom.slow_topic = config_topic(GROUP) if is_slow else ""
        try:
            super()._have(instance, act, note)
        finally:
            self.freedom.slow_topic = before

    # What is asked.

    def ways(self) -> DeadLetterOwners:
        """Which partition decides a letter."""
        topics = FakeAdmin(self.log).topics(self.case.topics)
        return DeadLetterOwners(self.case.config("0", 0), topics)

    def ask(self, command: DecideDeadLetters) -> Answer | None:
        """What the owner answers; None where there is none, or it dies over it."""
        for instance in self.instances:
            if instance.runs and not instance.dead:
                told = self._asked(instance, command)
                if told is not None:
                    return told
        return None

    def marks(self) -> tuple[PartitionCheckpoint, ...] | None:
        """What all owners tell; None while not every partition has one."""
        found: list[PartitionCheckpoint] = []
        owned: set[PartitionId] = set()
        for instance in self.instances:
            loop = instance.loop
            told = self._asked(instance, CheckpointsQuery(NAME)) if loop is not None else None
            if isinstance(told, CheckpointsAnswer) and instance.loop is loop and loop is not None:
                found += told.marks
                owned |= set(loop.assignment.running)
        wanted = {
            PartitionId(log.topic, log.number)
            for name in self._deciding()
            for log in self.log.logs[name].partitions
        }
        return tuple(found) if wanted <= owned else None

    def _asked(self, instance: Instance, query: Query) -> Answer | None:
        answers: list[Answer | None] = []
        self._have(instance, lambda: answers.append(instance.ask(query)))
        return answers[0]

    # What must hold.

    def letters(self) -> list[DeadLetterView]:
        """All dead letters that are committed, in the order in which they are redriven."""
        found = []
        for topic in self._letter_topics():
            for log in self.log.logs[topic].partitions:
                for offset, r in committed_records(log.archive):
                    place = DeadLetterPosition(topic, log.number, offset)
                    view = view_of(place, r.timestamp_ms, r.key, r.value, r.headers or [])
                    found.append(view)
        return found

    def _check(self) -> None:
        outputs, letters = self._counts()
        wanted = Counter[str]()
        ways = self.ways()
        seen = 0
        for view in self.before:
            is_meant = self.limit is None or seen < self.limit
            seen += is_meant
            outcome = self._expected(view, ways) if is_meant else Outcome(0, 0, "")
            assert view.value is not None
            came = outputs[view.value], letters[view.value] - 1
            if outcome.counted == "refused" and came == (0, 0) and self._may_fail(view):
                outcome = Outcome(0, 0, "failed")
            wanted[outcome.counted] += bool(outcome.counted)
            if came != outcome[:2]:
                raise Broken("redrive", f"{self.mode}: {view.position} {view.reason}: {came}")
        for place, sent in self.sent.items():
            value = sent.record.value or b""
            redriven = any(view.value == value for view in self.before)
            if not redriven and outputs[value] + letters[value] != 1:
                raise Broken("I2", f"{place} came out {outputs[value]} + {letters[value]} times")
        self._check_progress(wanted)

    def _check_progress(self, wanted: Mapping[str, int]) -> None:
        """What the job tells is what has become of the letters, to the last of them."""
        told = self.job.progress
        counted = (told.accepted, told.refused, told.failed, sum(told.skipped.values()))
        kinds = ("accepted", "refused", "failed", "skipped")
        if counted != tuple(wanted.get(kind, 0) for kind in kinds):
            raise Broken("redrive", f"{self.mode}: {counted} were counted of {dict(wanted)}")

    def _may_fail(self, view: DeadLetterView) -> bool:
        """Whether the broker alone knows that a letter is too large: the redrive gives it up."""
        is_large = len(view.value or b"") > OUTPUT_LIMIT_BYTES
        return is_large and self.case.output_bytes_max > len(view.value or b"")

    def _expected(self, view: DeadLetterView, ways: DeadLetterOwners) -> Outcome:
        if isinstance(ways.owner(view), str):
            return Outcome(0, 0, "skipped")
        is_large = len(view.value or b"") > OUTPUT_LIMIT_BYTES  # a duplicate is not too large yet
        if self.mode == "bypass":
            return Outcome(0, 0, "failed") if is_large else Outcome(1, 0, "accepted")
        if self.mode == "forget" and view.reason == Reason.DUPLICATE and not is_large:
            return Outcome(1, 0, "accepted")
        return Outcome(0, 1, "refused")

    def _counts(self) -> tuple[Counter[bytes], Counter[bytes]]:
        outputs, letters = Counter[bytes](), Counter[bytes]()
        for name in self.case.topics:
            for log in self.log.logs[f"{name}.unique"].partitions:
                records = self.log.records(f"{name}.unique", log.number)
                outputs.update(record.value or b"" for record in records)
        letters.update(view.value or b"" for view in self.letters())
        return outputs, letters

    def _letter_topics(self) -> list[str]:
        named = [f"{name}.dlq" for name in self.case.topics] + [self.fallback]
        return sorted(name for name in named if name in self.log.logs)

    def _deciding(self) -> tuple[str, ...]:
        return (by_address(GROUP),) if len(self.case.hops) > 1 else self.case.topics


def simulate_redrive(seed: int) -> Counter[str]:
    """Run one seed and return what it met; raises Broken when something does not hold."""
    return RedriveWorld(_lagging(redriving(seed))).simulated()
