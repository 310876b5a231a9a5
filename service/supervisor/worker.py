"""Worker: runs the lives of the loop, one after the other, until it is told to stop.

A life ends when the outcome of a transaction is unknown: the next one has a new producer and
consumer, and asks the broker for the truth. Being fenced twice in the same way, as a producer
within a minute or as a member of the group within a quarter of one, means that another process
uses the same name: then the worker exits.
"""

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from service.clock import Clock
from service.config.load import Config
from service.errors import ExitCode, ExitError
from service.kafka.admin import ClusterAdmin
from service.kafka.clients import Clients
from service.kafka.errors import KafkaFailure, Recovery, fault_of, without_frames
from service.processor.handlers.dispatch import answer
from service.processor.loop import Loop, NotAppliedError
from service.processor.reporter import Reporter
from service.processor.retry import BROKER_PATIENCE_S, RetryPolicy
from service.processor.transaction import OutcomeUnknownError, TransactionAbortedError
from service.queries.errors import Unavailable
from service.queries.inbox import QueryInbox, Steps
from service.queries.registry import Answer, Query
from state.keys import UnknownFormatError
from state.store import StoreCorruptError, StoreFailedError, Stores

_FENCED_WITHIN_S: Final = 60.0
_MEMBER_FENCED_WITHIN_S: Final = 15.0
"""A member may also be fenced by itself: after a restart of the broker, by what it asked before."""
_START_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 1.0
_FENCED_PAUSE_S: Final = (1.0, 4.0)
"""Of two rivals that come back at one moment each fences the other again, and both would leave."""
_CHANGES_MAX: Final = 16
_SHARE: Final = 1 / 16
_CREDIT_S_MAX: Final = 0.05
_BUSY_S: Final = 0.25
"""A loop is busy for so long after each record: a turn without any may only mean that the broker
is slow.
"""


class QueryTimeBudget:
    """The time that the loop gives to questions: a sixteenth of what passes while records come.

    Where a step takes longer, so much less is given afterwards.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self._busy_s = float("-inf")
        self._left_s = _CREDIT_S_MAX

    @contextlib.contextmanager
    def of_turn(self, *, has_read: bool) -> Iterator[Callable[[], bool]]:
        """Tells, while the block runs, whether any time is left after a turn."""
        now_s = self._clock.monotonic_s()
        if has_read:
            self._busy_s = now_s
        is_busy = now_s - self._busy_s < _BUSY_S
        earned_s = (now_s - self._since_s) * _SHARE if is_busy else math.inf
        self._left_s = min(_CREDIT_S_MAX, self._left_s + earned_s)
        self._since_s = now_s
        yield lambda: self._clock.monotonic_s() - now_s < self._left_s
        self._left_s -= self._clock.monotonic_s() - now_s


class LoopRunner:
    """One loop at a time, on one thread."""

    def __init__(
        self,
        config: Config,
        clients: Callable[[], Clients],
        stores: Stores,
        clock: Clock,
        watch: Reporter,
        inbox: QueryInbox,
        fenced_s: float = float("-inf"),
        *,
        goes_on: bool = False,
    ) -> None:
        """`fenced_s`: when a process of this name was fenced last, by the monotonic clock.

        Who goes on where another process had joined the group is not mistaken about the broker.
        """
        self._config = config
        self._clients = clients
        self._stores = stores
        self._clock = clock
        self._watch = watch
        self._retry_policy = RetryPolicy(watch, clock, config.service.session_timeout_ms)
        self._inbox = inbox
        self._allowance = QueryTimeBudget(clock)
        self._stopping = self._deciding = False
        self._end: Exception | None = None
        """What a change over REST ended in; it ends the turn."""
        self.fenced_s = fenced_s
        """As a producer."""
        self._member_fenced_s = float("-inf")
        self._goes_on = goes_on
        self._cluster: ClusterAdmin | None = None

    def stop(self) -> None:
        """Finish the batch at hand and leave; safe in a signal handler."""
        self._stopping = True

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop and no transaction is open any more, nor will be.

        For any thread: which of both it reads first matters, as does in `_live` which is set first.
        """
        return self._stopping and not self._deciding

    def run(self) -> None:
        """Until `stop`; ExitError for every end that is not one's own wish."""
        while not self._stopping:
            try:
                self._live()
            except OutcomeUnknownError as unknown:
                without_frames(unknown)
                self._watch.unknown(unknown.fault)
                cause = unknown.fault.cause
                sentence = f"the broker, which answered {cause}; see its log and our ACLs"
                self._retry_policy.wait(sentence, until_commit=not unknown.fault.fenced)
                pause_s = _PAUSE_S
                if unknown.fault.fenced:
                    self._fenced(unknown.fault)
                    pause_s = random.uniform(*_FENCED_PAUSE_S)  # noqa: S311 - no secret
                if self._retry_policy.waited_s() > self._patience_s(unknown.fault):
                    raise self._given_up(unknown.fault.cause) from unknown
                self._clock.sleep(pause_s)
        self._watch.publish("stopping", ())
        self._inbox.close()

    def _live(self) -> None:
        loop = self._begun()
        if loop is None:
            return
        self._goes_on = self._deciding = True
        try:
            while not self._stopping:
                self._turn(loop)
            self._watch.publish("stopping", ())
        finally:
            self._deciding = False
            self._inbox.let_go()
            with contextlib.suppress(KafkaException):
                loop.close(leaves=self._stopping)

    def _turn(self, loop: Loop) -> None:
        try:
            has_read = loop.turn()
            answer = partial(self._answer, loop)
            self._inbox.change(answer, _CHANGES_MAX)
            with self._allowance.of_turn(has_read=has_read) as is_left:
                self._inbox.answer(answer, is_left)
            self._face(loop)
        except StoreFailedError as error:
            sentence = f"The state folder refuses: {error}; mend the disk and start again."
            raise ExitError(ExitCode.CONTRADICTION, sentence) from error
        except UnknownFormatError as error:
            sentence = (
                f"A changelog holds a record that this version did not write ({error}); "
                "run the newer version, or delete what is foreign."
            )
            raise ExitError(ExitCode.CONTRADICTION, sentence) from error

    def _answer(self, loop: Loop, query: Query) -> Steps[Answer]:
        """The loop's answer; a change that did not come through ends like a turn of its own."""
        if self._end is not None:
            raise Unavailable("What was asked before did not come to its end; ask again.")
        try:
            return (yield from self._answered(loop, query))
        except (
            OutcomeUnknownError,
            NotAppliedError,
            StoreFailedError,
            StoreCorruptError,
            ExitError,
        ) as end:
            self._end = end
            sentence = "Whether it was done is not known; look, and ask again."
            raise Unavailable(sentence) from end

    def _answered(self, loop: Loop, query: Query) -> Steps[Answer]:
        try:
            told = answer(query, loop)
            return told if isinstance(told, Answer) else (yield from told)
        except TransactionAbortedError as aborted:
            loop.unchanged(without_frames(aborted).fault)
            sentence = f"The broker refused the change ({aborted.fault.cause}); ask again."
            raise Unavailable(sentence) from aborted

    def _face(self, loop: Loop) -> None:
        """What a change ended in, as if a turn had."""
        end, self._end = self._end, None
        if isinstance(end, StoreCorruptError):
            loop.damaged(end)
        elif end is not None:
            raise end

    def _begun(self) -> Loop | None:
        """A loop whose first questions the broker has answered; None when told to stop."""
        while not self._stopping:
            self._watch.beat()
            clients = self._clients()
            self._cluster = clients.cluster
            try:
                return Loop(
                    self._config,
                    clients,
                    self._stores,
                    self._clock,
                    self._watch,
                    self._retry_policy,
                )
            except KafkaException as error:
                fault = fault_of(without_frames(error).args[0])
            except TransactionAbortedError as error:
                fault = without_frames(error).fault
            if fault.remedy is Recovery.REBUILD:
                raise OutcomeUnknownError(fault)
            self._retry_policy.wait(f"the broker at {self._servers}, which answered {fault.cause}")
            if self._retry_policy.waited_s() > self._patience_s(fault):
                raise self._given_up(fault.cause)
            self._clock.sleep(_PAUSE_S)
        return None

    def _patience_s(self, fault: KafkaFailure) -> float:
        """How long this may last. At a first start, a wrong address or a denied right is told soon.

        A cluster that answers some questions may have just lost a broker: the others take over.
        """
        has_answered = self._cluster is not None and self._cluster.has_answered
        waits_long = self._goes_on or (has_answered and not fault.denied)
        return BROKER_PATIENCE_S if waits_long else _START_PATIENCE_S

    @property
    def _servers(self) -> object:
        return self._config.kafka.common.get("bootstrap.servers")

    def _given_up(self, cause: str) -> ExitError:
        return ExitError(
            ExitCode.BROKER,
            f"Cannot work with the broker at {self._servers}, which answered {cause}; "
            "check the address, the network and our rights.",
        )

    def _fenced(self, fault: KafkaFailure) -> None:
        """End, if it was fenced in the same way a short time ago.

        Of two processes with one name each may be fenced as a producer by the one and as a member
        by the other; counted together, both would leave.
        """
        now_s = self._clock.monotonic_s()
        within_s = _MEMBER_FENCED_WITHIN_S if fault.of_group else _FENCED_WITHIN_S
        last_s = self._member_fenced_s if fault.of_group else self.fenced_s
        if now_s - last_s < within_s:
            service = self._config.service
            raise ExitError(
                ExitCode.FENCED,
                f"Fenced twice within {within_s:.0f} s ({fault.cause}): another process runs as "
                f"instance {service.instance} of {service.group_id}; stop one, or set "
                "service.instance.",
            )
        if fault.of_group:
            self._member_fenced_s = now_s
        else:
            self.fenced_s = now_s
