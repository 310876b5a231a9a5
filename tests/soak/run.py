"""Run: the load, the faults at their times, and the judgement at the end."""

import heapq
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from ringfence_service.errors import ExitCode
from tests.broker.carried_world import world_of
from tests.broker.recorder import Recorder
from tests.broker.service import Service
from tests.broker.world import Manner, World
from tests.histories.checks import CHECKS
from tests.soak.footprint import Footprint, footprint, more_threads
from tests.soak.plan import GUESTS, Fault, Kind, plan
from tests.soak.trouble import Troublemaker, Undo
from tests.soak.venue import venue
from tests.support.waiting import eventually

RECORDS_PER_S: Final = 150
WARM_UP_RECORDS: Final = 1500
PROGRESS_S: Final = 10.0
CATCH_UP_S: Final = 180.0
"""The watchdog ends a client that hangs after a minute; then another has to be shared in."""
TOLD_WITHIN_S: Final = 5.0
"""A broker that is away for longer has to be reported on /readyz."""


class Verdict(NamedTuple):
    """What was to hold, and why it does not; None where it does."""

    promise: str
    broken: str | None


class Soak:
    """One run. `say` is called with each line as it happens."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        seconds: float,
        manner: Manner,
        say: Callable[[str], None],
        brokers: int = 1,
        kinds: Sequence[Kind] = tuple(Kind),
    ) -> None:
        self._folder = folder
        self._brokers = brokers
        self._plan = plan(seed, seconds, brokers, kinds)
        self._seed = seed
        self._seconds = seconds
        self._manner = manner
        self._say = say
        self._verdicts: list[Verdict] = []
        self._began_s = time.monotonic()
        self._done = 0

    def run(self) -> tuple[Verdict, ...]:
        """Everything from the first record to what held."""
        with (
            venue(self._folder / "broker", self._brokers) as place,
            world_of(self._manner)(
                {**place.client, "log_level": "0"},  # the run reports its own faults
                self._folder,
                f"soak-{self._seed}",
                count=WARM_UP_RECORDS + round(RECORDS_PER_S * self._seconds),
                seed=self._seed,
                service_client=place.proxy.client_properties,
                manner=self._manner,
            ) as world,
        ):
            world.create(replicas=self._brokers)
            instances = [world.service(instance=str(n)) for n in range(1 + GUESTS)]
            survivor, guests = instances[0], instances[1:]
            with Recorder(world) as recorder:
                world.send(WARM_UP_RECORDS, recorder.note)
                survivor.start()
                world.wait_decided()
                survivor.wait_ready(world.owned)
                base = footprint(survivor.process.pid)
                for guest in guests:
                    guest.start()
                trouble = Troublemaker(world, instances, place)
                self._began_s = time.monotonic()
                with ThreadPoolExecutor(1) as sender:
                    sending = sender.submit(self._send, world, recorder)
                    self._strike(world, instances, trouble)
                    self._hold("the load went on to its end", lambda: _done(sending))
                self._settle(world, survivor, guests, base)
            self._judge(world, recorder)
        return tuple(self._verdicts)

    @property
    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _send(self, world: World, recorder: Recorder) -> None:
        for second in count(1):
            if second > self._seconds:
                world.send(None, recorder.note)
                return
            world.send(RECORDS_PER_S, recorder.note)
            time.sleep(max(0.0, second - self._now_s))  # noqa: TID251 - the load has a rate

    def _strike(self, world: World, instances: Sequence[Service], trouble: Troublemaker) -> None:
        """Every fault at its time, and what undoes it at its own."""
        faults, undoing = list(self._plan), list[tuple[float, int, Undo]]()
        order, progress_s = count(), PROGRESS_S
        while faults or undoing:
            if undoing and undoing[0][0] <= self._now_s:
                self._hold("what was broken can be fixed", heapq.heappop(undoing)[2])
            elif faults and faults[0].at_s <= self._now_s:
                fault = faults.pop(0)
                mend = self._provoked(trouble, fault)
                self._say(f"{self._now_s:7.1f} s  {fault}{'' if mend else ' (is down already)'}")
                if mend is not None:
                    watched = self._watched(fault, instances[0], mend)
                    heapq.heappush(undoing, (self._now_s + fault.for_s, next(order), watched))
                    self._done += 1
            elif self._now_s >= progress_s:
                self._progress(world, instances)
                progress_s += PROGRESS_S
            else:
                time.sleep(0.05)  # noqa: TID251 - faults come at their times

    def _provoked(self, trouble: Troublemaker, fault: Fault) -> Undo | None:
        try:
            return trouble.provoke(fault)
        except AssertionError as error:
            self._find("no instance leaves by itself", str(error))
            return None

    def _watched(self, fault: Fault, survivor: Service, mend: Undo) -> Undo:
        """Check that a long absence of the only broker is reported before the broker comes back."""
        is_missed = fault.kind is Kind.BROKER_KILL and self._brokers == 1
        if not is_missed or fault.for_s < TOLD_WITHIN_S:
            return mend

        def look_and_mend() -> None:
            if survivor.is_awake:
                self._hold(
                    "I13 a broker that is away is reported",
                    lambda: eventually(lambda: not survivor.is_ready, survivor),
                )
            mend()

        return look_and_mend

    def _progress(self, world: World, instances: Sequence[Service]) -> None:
        survivor = instances[0]
        has = "has left" if survivor.ended else f"has {footprint(survivor.process.pid)}"
        self._say(
            f"{self._now_s:7.1f} s  sent {world.sent}, decided {world.decided}, "
            f"{self._done} faults so far; instance 0 {has}"
        )

    def _settle(
        self, world: World, survivor: Service, guests: Sequence[Service], base: Footprint
    ) -> None:
        """No more faults: all is decided, and the survivor is as it was at first."""
        self._say(f"{self._now_s:7.1f} s  no more faults")
        self._hold("I12 everything that was sent is decided", world.wait_decided)
        for guest in guests:
            if guest.ended and guest.wait() == ExitCode.BROKER:
                guest.start()  # the broker was away when it began, as whatever runs it would do
            self._hold("an instance that is asked to leave leaves", guest.wait_started)
            self._hold("an instance that is asked to leave leaves", guest.stop)
        if survivor.ended:
            self._find(
                "the survivor survives", f"it left with {survivor.wait()}\n{survivor.tail()}"
            )
            return

        def is_back() -> bool:
            return footprint(survivor.process.pid).returned_to(base, self._brokers)

        self._hold(
            "I12 the survivor has all partitions",
            lambda: survivor.wait_ready(world.owned),
        )
        self._hold(
            "I12 memory, threads and file handles return to their base",
            lambda: eventually(is_back),
        )
        self._say(f"          at first {base}")
        last = footprint(survivor.process.pid)
        self._say(f"          at last  {last}; {more_threads(last, base)}")
        self._hold("the survivor leaves in order", survivor.stop)

    def _judge(self, world: World, recorder: Recorder) -> None:
        self._hold("I1 I2 I3 I4 I5 I9 I10 each input has its one fate", world.verify_fates)
        self._hold("I6 I7 the store is the fold of its changelog", world.verify_store)
        self._hold("I8 the changelog is what the model remembers", world.verify_changelog)
        self._hold("I11 no transaction is open", world.verify_nothing_is_open)
        history = recorder.history()
        self._say(f"          {len(history.sends)} sends, {len(history.polls)} polls recorded")
        for name, check in CHECKS.items():
            self._find(f"no {name}", next(check(history), None))

    def _hold(self, promise: str, check: Callable[[], None]) -> None:
        try:
            check()
        except AssertionError as error:
            self._find(promise, str(error))
        else:
            self._find(promise, None)

    def _find(self, promise: str, broken: str | None) -> None:
        self._verdicts.append(Verdict(promise, broken))


def _done(sending: Future[None]) -> None:
    """Until the load has ended; what went wrong with it is the caller's."""
    try:
        sending.result(CATCH_UP_S)
    except TimeoutError:
        raise AssertionError(f"records were still sent {CATCH_UP_S} s after the faults") from None
