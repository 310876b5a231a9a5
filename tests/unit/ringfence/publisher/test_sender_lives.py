"""Any order of deaths, losses and recoveries: each message once, in order, and an empty store."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ringfence_client.publisher.sender import PublisherState
from tests.fakes.judge import Judge
from tests.unit.ringfence.life import Clock, KilledError, Life

FEW, FLAG = st.integers(1, 12), st.booleans()


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.judge = Judge()
        self.clock = Clock()
        self.published: list[bytes] = []

    @initialize(now_ms=st.integers(0, 3), last=st.sampled_from([0, 1, 2_000_000]))
    def begin(self, now_ms: int, last: int) -> None:
        self.judge.last = last  # of an earlier installation
        self.life = Life(self.judge, self.folder / "s", self.clock, now_ms=now_ms)

    @rule(count=FEW)
    def publish(self, count: int) -> None:
        first = len(self.published)
        values = [b"%d" % number for number in range(first, first + count)]
        self.life.publish(*values)
        self.published += values

    @rule(count=FEW, judged=st.integers(0, 12))
    def step(self, count: int, judged: int) -> None:
        for _ in range(count):
            self.clock.now_s += 0.3
            self.life.sender.step()
        self.judge.judge(judged)

    @rule(count=FEW)
    def judge_some(self, count: int) -> None:
        self.judge.judge(count)

    @rule(first=st.integers(0, 6), count=st.integers(0, 9))
    def land(self, first: int, count: int) -> None:
        self.judge.land(first, count)

    @rule()
    def fail_the_connection(self) -> None:
        if self.life.connections:
            self.life.connections[-1].fails = True

    @rule(what=st.sampled_from(["up", "broker_up", "loses_acks", "loses_answers"]), so=FLAG)
    def turn(self, what: str, *, so: bool) -> None:
        setattr(self.judge, what, so)

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.clock.now_s += seconds

    @rule(passings=st.integers(0, 30), judged=st.integers(0, 12))
    def kill(self, passings: int, judged: int) -> None:
        """At this passing of a seam, or soon after."""
        self.life.steps_left = passings
        try:
            for _ in range(6):
                self.life.sender.step()
                self.judge.judge(judged)
        except KilledError:
            pass
        self.life = Life(self.judge, self.life.kill(), self.clock)

    @invariant()
    def what_is_accepted_is_what_was_published_once_and_in_order(self) -> None:
        accepted = [sent.value for sent in self.judge.accepted]
        assert accepted == self.published[: len(accepted)]

    @invariant()
    def what_is_not_in_the_store_is_accepted(self) -> None:
        if hasattr(self, "life"):
            dropped = len(self.published) - self.life.store.pending
            assert dropped <= len(self.judge.accepted)
            assert self.life.sender.state is not PublisherState.STOPPED

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        self.judge.up = self.judge.broker_up = True
        self.judge.loses_acks = self.judge.loses_answers = False
        for _ in range(200):
            self.life.run(1)
            self.judge.land(1, 9)
            if not self.life.store.pending and not self.judge.adrift:
                break
        self.judge.judge(10**6)
        assert [sent.value for sent in self.judge.accepted] == self.published
        assert self.life.store.pending == 0
        self.life.end()
        shutil.rmtree(self.folder)


Lives.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestLives = Lives.TestCase
