"""Worker: the loop's lives, one after the other, until it is told to stop.

A life ends when the outcome of a transaction is unknown: then producer and consumer are made
anew and the truth comes from the broker. Being fenced twice within a minute means that another
process bears our name: then we leave.
"""

import contextlib
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException

from service.answers import answer
from service.clock import Clock
from service.commit import OutcomeUnknownError, TransactionAbortedError
from service.config import Config
from service.control import Inbox
from service.errors import ExitCode, ExitError
from service.faults import Remedy, fault_of
from service.kafka import Clients
from service.loop import BROKER_PATIENCE_S, Loop
from service.watch import Watch
from state.run import UnknownFormatError
from state.store import StoreFailedError, Stores

_FENCED_WITHIN_S: Final = 60.0
_START_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 1.0
_ANSWERS_MAX: Final = 16


class Worker:
    """One loop at a time, on one thread."""

    def __init__(
        self,
        config: Config,
        clients: Callable[[], Clients],
        stores: Stores,
        clock: Clock,
        watch: Watch,
        inbox: Inbox,
    ) -> None:
        self._config = config
        self._clients = clients
        self._stores = stores
        self._clock = clock
        self._watch = watch
        self._inbox = inbox
        self._stopping = False
        self._fenced_s = float("-inf")
        self._patience_s = _START_PATIENCE_S

    def stop(self) -> None:
        """Finish the batch at hand and leave; safe in a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Until `stop`; ExitError for every end that is not one's own wish."""
        while not self._stopping:
            try:
                self._live()
            except OutcomeUnknownError as unknown:
                self._watch.unknown(unknown.fault)
                if unknown.fault.fenced:
                    self._fenced(unknown.fault.cause)
                if self._watch.waited_s() > self._patience_s:
                    raise self._given_up(unknown.fault.cause) from unknown
                self._clock.sleep(_PAUSE_S)
        self._watch.publish("stopping", ())
        self._inbox.close()

    def _live(self) -> None:
        loop = self._begun()
        if loop is None:
            return
        self._patience_s = BROKER_PATIENCE_S
        try:
            while not self._stopping:
                self._turn(loop)
            self._watch.publish("stopping", ())
        finally:
            with contextlib.suppress(KafkaException):
                loop.close()

    def _turn(self, loop: Loop) -> None:
        try:
            loop.turn()
        except StoreFailedError as error:
            sentence = f"The state folder refuses: {error}; mend the disk and start again."
            raise ExitError(ExitCode.CONTRADICTION, sentence) from error
        except UnknownFormatError as error:
            sentence = (
                f"A changelog holds a record that this version did not write ({error}); "
                "run the newer version, or delete what is foreign."
            )
            raise ExitError(ExitCode.CONTRADICTION, sentence) from error
        self._inbox.run_pending(lambda query: answer(query, loop), _ANSWERS_MAX)

    def _begun(self) -> Loop | None:
        """A loop whose first questions the broker has answered; None when told to stop."""
        while not self._stopping:
            self._watch.beat()
            try:
                return Loop(self._config, self._clients(), self._stores, self._clock, self._watch)
            except KafkaException as error:
                fault = fault_of(error.args[0])
            except TransactionAbortedError as error:
                fault = error.fault
            if fault.remedy is Remedy.REBUILD:
                raise OutcomeUnknownError(fault)
            self._watch.wait(f"the broker at {self._servers}, which answered {fault.cause}")
            if self._watch.waited_s() > self._patience_s:
                raise self._given_up(fault.cause)
            self._clock.sleep(_PAUSE_S)
        return None

    @property
    def _servers(self) -> object:
        return self._config.kafka.common.get("bootstrap.servers")

    def _given_up(self, cause: str) -> ExitError:
        return ExitError(
            ExitCode.BROKER,
            f"Cannot work with the broker at {self._servers}, which answered {cause}; "
            "check the address, the network and our rights.",
        )

    def _fenced(self, cause: str) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._fenced_s < _FENCED_WITHIN_S:
            service = self._config.service
            raise ExitError(
                ExitCode.FENCED,
                f"Fenced twice within a minute ({cause}): another process runs as instance "
                f"{service.instance} of {service.group_id}; stop one, or set service.instance.",
            )
        self._fenced_s = now_s
