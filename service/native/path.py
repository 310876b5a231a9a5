"""Fast path: which one a process runs, and why."""

from typing import NamedTuple

from service.config.model import FastPath
from service.kafka.clients import Makers
from service.native.clients import NativeConsumer, NativeProducer
from service.native.extension import loaded
from service.native.ring import FORMS
from state.strategies.ring_memory import PYTHON, RingForms, RingStrategy


class ChosenPath(NamedTuple):
    """A fast path that a process can run."""

    name: FastPath
    why: str
    """Why it is not the compiled one; empty if it is."""
    makers: Makers | None
    """None: those of the client library."""
    rings: RingForms

    def use(self) -> Makers | None:
        """Have this process load its rings in this form; return how clients are made."""
        RingStrategy.forms = self.rings
        return self.makers


def chosen(wanted: FastPath) -> ChosenPath:
    """Return the path that is wanted if it can run here, else the one in Python."""
    why = loaded().why if wanted == "native" else 'service.fast_path is "python"'
    if why:
        return ChosenPath("python", why, None, PYTHON)
    return ChosenPath("native", "", Makers(NativeConsumer, NativeProducer), FORMS)
