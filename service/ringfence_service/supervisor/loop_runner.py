"""Loop runner: a worker's main thread, which runs one loop after another until it is stopped.

A loop ends when the outcome of a transaction is unknown: the next one has a new producer and
consumer, and reads the outcome from the broker. Being fenced as a producer twice within a minute
means that another process uses the same name: then the worker exits. Of two such processes one
stays, since the producer that was initialised last is not fenced. Membership does not decide it,
since each of the two may be the last in one way; a member exits when it is fenced four times.
"""

import contextlib
import random
from collections.abc import Callable
from functools import partial
from typing import Final

from confluent_kafka import KafkaException

from ringfence_service.clock import Clock
from ringfence_service.config.model import Config
from ringfence_service.errors import ExitCode, ExitError
from ringfence_service.kafka.clients import Clients
from ringfence_service.kafka.errors import (
    KafkaFailure,
    Recovery,
    fault_of,
    waited_for,
    without_frames,
)
from ringfence_service.kafka.model import ClusterAdmin
from ringfence_service.processor.committer import NotAppliedError
from ringfence_service.processor.handlers.dispatch import answer
from ringfence_service.processor.layout import LayoutContendedError
from ringfence_service.processor.loop import Loop
from ringfence_service.processor.reporter import Reporter
from ringfence_service.processor.retry import BROKER_PATIENCE_S, RetryPolicy
from ringfence_service.processor.time_budget import TimeBudget
from ringfence_service.processor.transaction import OutcomeUnknownError, TransactionAbortedError
from ringfence_service.queries.errors import Unavailable
from ringfence_service.queries.inbox import QueryInbox, Steps
from ringfence_service.queries.registry import Answer, Query
from ringfence_state.keys import UnknownFormatError
from ringfence_state.store import StoreCorruptError, StoreFailedError, Stores

_FENCED_WITHIN_S: Final = 60.0
"""Fencings that are further apart show no rival: each may be due to an earlier process.

Longer than a rival needs to return: `_FENCED_PAUSE_S` in the same process, half a minute at most if
its supervisor restarts it.
"""
_MEMBER_FENCED_MAX: Final = 4
"""A member may also fence itself: after a broker restart, by a request that it sent before."""
_START_PATIENCE_S: Final = 20.0
"""How long a first start waits for the broker: a wrong address or a missing ACL is reported soon.

Less than `BROKER_PATIENCE_S`, which applies once the cluster has answered other requests, or if an
earlier process of the worker had joined the group.
"""
_PAUSE_S: Final = 1.0
"""Pause before the next loop, or the next attempt to open one: each creates new clients.

Queries wait, and there is no heartbeat: less than the four seconds after which `/readyz` fails.
"""
_FENCED_PAUSE_S: Final = (1.0, 4.0)
"""Random: rivals that return at the same time would fence each other again."""
_QUERY_SHARE: Final = 1 / 16
"""How much of the time queries get while records arrive."""
_CHANGES_MAX: Final = 16
"""Changes of one turn, each in a transaction for which records wait; the others wait for the next.

Less than `_INBOX_DEPTH` in `service/ringfence_service/supervisor/worker_process.py`, which bounds
those that wait.
"""


class LoopRunner:
    """Runs one loop at a time, on one thread."""

    def __init__(
        self,
        config: Config,
        clients: Callable[[], Clients],
        stores: Stores,
        clock: Clock,
        reporter: Reporter,
        inbox: QueryInbox,
        fenced_s: float = float("-inf"),
        *,
        resumes: bool = False,
        tests_broker: bool = False,
    ) -> None:
        """`fenced_s`: when a process of this name was last fenced, by the monotonic clock.

        `resumes`: an earlier process of this worker had joined the group, so the broker address is
        known to be right, and the worker waits longer for the broker.
        `tests_broker`: see `Loop`.
        """
        self._config = config
        self._clients = clients
        self._stores = stores
        self._clock = clock
        self._reporter = reporter
        self._retry_policy = RetryPolicy(reporter, clock, config.service.session_timeout_ms)
        self._inbox = inbox
        self._budget = TimeBudget(clock, _QUERY_SHARE)
        self._stopping = self._deciding = False
        self._change_error: Exception | None = None
        """The error of a change over REST that has to end the turn."""
        self.fenced_s = fenced_s
        """When it was last fenced as a producer."""
        self._member_fenced_s: list[float] = []
        self._resumes = resumes
        self._tests_broker = tests_broker
        self._cluster: ClusterAdmin | None = None

    def stop(self) -> None:
        """Finish the current batch and leave the group; safe in a signal handler."""
        self._stopping = True

    @property
    def is_leaving(self) -> bool:
        """Whether it is stopping, and no transaction is open or will be opened.

        Any thread may read it, so the order matters in which the two flags are read here and set
        in `_run_loop`.
        """
        return self._stopping and not self._deciding

    def run(self) -> None:
        """Run until `stop` is called; ExitError for every other end."""
        while not self._stopping:
            try:
                self._run_loop()
            except OutcomeUnknownError as unknown:
                without_frames(unknown)
                self._reporter.unknown(unknown.fault)
                sentence = waited_for(unknown.fault.cause, self._explain)
                self._retry_policy.wait(sentence, until_commit=not unknown.fault.fenced)
                pause_s = _PAUSE_S
                if unknown.fault.fenced:
                    self.note_fencing(unknown.fault)
                    pause_s = random.uniform(*_FENCED_PAUSE_S)  # noqa: S311 - no secret
                if self._retry_policy.waited_s() > self._patience_s(unknown.fault):
                    raise self._gives_up(unknown.fault.cause) from unknown
                self._clock.sleep(pause_s)
        self._reporter.publish("stopping", ())
        self._inbox.close()

    def _run_loop(self) -> None:
        loop = self.open_loop()
        if loop is None:
            return
        self._resumes = self._deciding = True
        unknown: OutcomeUnknownError | None = None
        try:
            while not self._stopping:
                self.turn(loop)
            self._reporter.publish("stopping", ())
        except OutcomeUnknownError as error:
            unknown = without_frames(error)
        finally:
            self._deciding = False
            self._inbox.abort_running()
            with contextlib.suppress(KafkaException):
                loop.close(leaves=self._stopping)
        if unknown is not None:
            raise unknown

    def turn(self, loop: Loop) -> None:
        """Run one turn of a loop, then answer queries; ExitError if its state cannot be used."""
        try:
            has_read = loop.turn()
            answer = partial(self.answer, loop)
            self._inbox.change(answer, _CHANGES_MAX)
            with self._budget.of_turn(has_read=has_read) as is_left:
                self._inbox.answer(answer, is_left)
            self.raise_change_error(loop)
        except StoreFailedError as error:
            sentence = f"The state folder failed: {error}; {error.fault.fix}, and start again."
            code = ExitCode.USAGE if error.fault.is_limit else ExitCode.CONTRADICTION
            raise ExitError(code, sentence) from error
        except UnknownFormatError as error:
            sentence = (
                f"A changelog holds a record that this version did not write ({error}); "
                "run the newer version, or delete that record."
            )
            raise ExitError(ExitCode.CONTRADICTION, sentence) from error

    def answer(self, loop: Loop, query: Query) -> Steps[Answer]:
        """Return the loop's answer; an error that leaves a change in doubt also ends the turn."""
        if self._change_error is not None:
            raise Unavailable("An earlier change has failed; try again.")
        try:
            return (yield from self._answered(loop, query))
        except (
            OutcomeUnknownError,
            NotAppliedError,
            StoreFailedError,
            StoreCorruptError,
            ExitError,
        ) as error:
            self._change_error = error
            sentence = "The outcome of the change is not known; check it, and try again."
            raise Unavailable(sentence) from error

    def _answered(self, loop: Loop, query: Query) -> Steps[Answer]:
        try:
            result = answer(query, loop)
            return result if isinstance(result, Answer) else (yield from result)
        except TransactionAbortedError as aborted:
            loop.failures.unchanged(without_frames(aborted).fault)
            sentence = f"The broker refused the change ({aborted.fault.cause}); try again."
            raise Unavailable(sentence) from aborted

    def raise_change_error(self, loop: Loop) -> None:
        """Handle the error of a change as if the turn had raised it."""
        error, self._change_error = self._change_error, None
        if isinstance(error, StoreCorruptError):
            loop.failures.damaged(without_frames(error))
        elif error is not None:
            raise error

    def open_loop(self) -> Loop | None:
        """Return a loop once the broker responds; None if stopped before that."""
        while not self._stopping:
            self._reporter.beat()
            clients = self._clients()
            self._cluster = clients.cluster
            try:
                return Loop(
                    self._config,
                    clients,
                    self._stores,
                    self._clock,
                    self._reporter,
                    self._retry_policy,
                    lambda: self._stopping,
                    tests_broker=self._tests_broker,
                    has_joined=self._resumes,
                )
            except LayoutContendedError as contended:
                self._retry_policy.wait_again(str(without_frames(contended)))
                continue
            except KafkaException as error:
                fault = fault_of(without_frames(error).args[0])
            except TransactionAbortedError as error:
                fault = without_frames(error).fault
            if fault.remedy is Recovery.REBUILD:
                raise OutcomeUnknownError(fault)
            sentence = self._explain(fault.cause)
            self._retry_policy.wait(
                sentence or f"the broker at {self._servers}, which answered {fault.cause}"
            )
            if self._retry_policy.waited_s() > self._patience_s(fault):
                raise self._gives_up(fault.cause)
            self._clock.sleep(_PAUSE_S)
        return None

    def _patience_s(self, fault: KafkaFailure) -> float:
        """Return how long to wait for the broker.

        At a first start the wait is short, so that a wrong address or a missing ACL is reported
        soon. But a cluster that answers some requests may have just lost a broker whose work the
        others take over.
        """
        has_answered = self._cluster is not None and self._cluster.has_answered
        waits_long = self._resumes or (has_answered and not fault.denied)
        return BROKER_PATIENCE_S if waits_long else _START_PATIENCE_S

    @property
    def _servers(self) -> object:
        return self._config.kafka.common.get("bootstrap.servers")

    def _explain(self, cause: str) -> str | None:
        return None if self._cluster is None else self._cluster.explain(cause)

    def _gives_up(self, cause: str) -> ExitError:
        sentence = self._explain(cause) or (
            f"the broker at {self._servers}, which answered {cause}; "
            "check the address, the network and the user's ACLs"
        )
        return ExitError(ExitCode.BROKER, f"Cannot work with {sentence}.")

    def note_fencing(self, fault: KafkaFailure) -> None:
        """Raise ExitError if it was fenced too often lately, see the head of this module."""
        earliest_s = self._clock.monotonic_s() - _FENCED_WITHIN_S
        if fault.of_group:
            recent = [at_s for at_s in self._member_fenced_s if at_s > earliest_s]
            self._member_fenced_s = [*recent, self._clock.monotonic_s()]
            is_rival = len(self._member_fenced_s) >= _MEMBER_FENCED_MAX
        else:
            is_rival = self.fenced_s > earliest_s
            self.fenced_s = self._clock.monotonic_s()
        if is_rival:
            service = self._config.service
            raise ExitError(
                ExitCode.FENCED,
                f"Fenced repeatedly within {_FENCED_WITHIN_S:.0f} s ({fault.cause}): another "
                f"process runs as instance {service.instance} of {service.group_id}; stop one, or "
                "set service.instance.",
            )
