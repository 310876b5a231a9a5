"""The compiled fast path for tests: built for them, with pieces of records that no client consumed.

Where there is no compiler the tests that need it are skipped. NATIVE_FLAGS has more flags for the
compiler, such as those of a sanitizer.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Message

from ringfence_service.dedup import batch
from ringfence_service.native import ring, window
from ringfence_service.native.extension import loaded
from ringfence_service.native.records import Records
from ringfence_state.model import PartitionId
from ringfence_state.strategies.ring_memory import RingStrategy
from ringfence_state.strategies.window import WindowStrategy
from tests.fakes.native import piece_of
from tests.support import deciding

_BUILD = Path(__file__).parents[2] / "native/build.py"
_FOLDER = tempfile.TemporaryDirectory()


def _built() -> str:
    """Build the extension with what only tests need, in place of the installed one."""
    flags = f"--flags=-DFOR_TESTS {os.environ.get('NATIVE_FLAGS', '')}"
    command = [sys.executable, str(_BUILD), "--to", _FOLDER.name, flags]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sys.path.insert(0, _FOLDER.name)
    sys.modules.pop("ringfence_native", None)
    loaded.cache_clear()
    return loaded().why or ("" if hasattr(loaded().module, "piece") else told)


_WHY = _built()
needs_native = pytest.mark.skipif(bool(_WHY), reason=_WHY)


@contextmanager
def native_rings() -> Iterator[pytest.MonkeyPatch]:
    """Have rings and windows loaded in compiled form."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RingStrategy, "forms", ring.FORMS)
        patch.setattr(WindowStrategy, "forms", window.FORMS)
        yield patch


@contextmanager
def native_deciding() -> Iterator[None]:
    """Have the worlds of `tests.support.deciding` decide pieces."""

    def read(messages: Sequence[Message]) -> batch.ParsedRecords:
        sources = [PartitionId(each.topic() or "", each.partition() or 0) for each in messages]
        headers = vars(batch)["read_headers"](messages)
        return batch.read(Records.of(piece_of(messages, headers, sources)))

    with native_rings() as patch:
        patch.setattr(deciding, "read", read)
        yield
