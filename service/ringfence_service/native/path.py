"""Fast path: which one a process runs, and why."""

from typing import NamedTuple

from ringfence_service.config.model import FastPath
from ringfence_service.kafka.clients import Makers
from ringfence_service.native.clients import NativeConsumer, NativeProducer, layout_fault
from ringfence_service.native.extension import loaded
from ringfence_service.native.ring import FORMS
from ringfence_state.strategies.ring_memory import PYTHON, RingForms, RingStrategy


class ChosenPath(NamedTuple):
    """A fast path that a process can run."""

    name: FastPath
    fault: str | None
    """Why the configured fast path cannot run; None if it runs."""
    makers: Makers | None
    """How records and clients are made; None for those of the client library."""
    rings: RingForms

    def use(self) -> Makers | None:
        """Have this process load its rings in this form; return how clients are made."""
        RingStrategy.forms = self.rings
        return self.makers


def chosen(wanted: FastPath) -> ChosenPath:
    """Return the path that is wanted if it can run here, else the one in Python."""
    fault = (loaded().why or layout_fault()) if wanted == "native" else None
    if fault or wanted == "python":
        return ChosenPath("python", fault, None, PYTHON)
    return ChosenPath("native", None, Makers(NativeConsumer, NativeProducer), FORMS)
