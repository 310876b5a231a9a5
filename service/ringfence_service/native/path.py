"""Fast path: which one a process runs, and why."""

from typing import NamedTuple

from ringfence_service.config.model import FastPath
from ringfence_service.kafka.clients import Makers
from ringfence_service.native import ring, window
from ringfence_service.native.clients import NativeConsumer, NativeProducer, layout_fault
from ringfence_service.native.extension import loaded
from ringfence_state.strategies import ring_memory
from ringfence_state.strategies import window as window_memory
from ringfence_state.strategies.base import Forms
from ringfence_state.strategies.ring_memory import RingStrategy
from ringfence_state.strategies.window import WindowStrategy


class ChosenPath(NamedTuple):
    """A fast path that a process can run."""

    name: FastPath
    fault: str | None
    """Why the configured fast path cannot run; None if it runs."""
    makers: Makers | None
    """How records and clients are made; None for those of the client library."""
    rings: Forms
    windows: Forms

    def use(self) -> Makers | None:
        """Have this process load rings and windows in this form; return how clients are made."""
        RingStrategy.forms, WindowStrategy.forms = self.rings, self.windows
        return self.makers


def chosen(wanted: FastPath) -> ChosenPath:
    """Return the path that is wanted if it can run here, else the one in Python."""
    fault = (loaded().why or layout_fault()) if wanted == "native" else None
    if fault or wanted == "python":
        return ChosenPath("python", fault, None, ring_memory.PYTHON, window_memory.PYTHON)
    makers = Makers(NativeConsumer, NativeProducer)
    return ChosenPath("native", None, makers, ring.FORMS, window.FORMS)
