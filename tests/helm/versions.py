"""Versions: this code as another release of it, and one that keeps its state in a newer format.

A version is a folder with the packages and their metadata, as an installation has them. The newer
format is made as docs/upgrades.md instructs a developer who changes it: the number, a reader for it
beside the older ones, and values that the older version cannot read.
"""

import re
import shutil
from pathlib import Path
from typing import Final

from ringfence_state.segment import FORMAT
from tests.broker.service import REPOSITORY
from tools.source_roots import SOURCE_ROOTS

PACKAGES: Final = (*SOURCE_ROOTS, "tools")
NEWER: Final = FORMAT + 1
MARK: Final = b"Z"
"""What a run of the newer format has after its number, and no older one."""


def another(folder: Path, version: str) -> Path:
    """The same code under another number."""
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, folder / name)
    about = folder / f"ringfence_server-{version}.dist-info"
    about.mkdir()
    text = f"Metadata-Version: 2.1\nName: ringfence-server\nVersion: {version}\n"
    (about / "METADATA").write_text(text, encoding="utf-8")
    return folder


def with_newer_format(folder: Path, version: str) -> Path:
    """A version that writes runs with a byte more, and reads those of today."""
    state = another(folder, version) / "state" / "ringfence_state"
    run = state / "segment.py"
    _replace(run, rf"^FORMAT: Final = {FORMAT}$", f"FORMAT: Final = {NEWER}")
    _replace(run, r"^    return b\"\"\.join\(parts\)$", _WRITER)
    _replace(run, rf"{{(.*{FORMAT}: _head_{FORMAT})}}$", rf"{{\1, {NEWER}: _head_{NEWER}}}")
    _replace(run, r"^_HEADS: ", _READER + "_HEADS: ")
    for name in ("strategies/per_publisher.py", "pending_group.py", "redrive_progress.py"):
        _replace(state / name, rf"{{(.*\b{FORMAT}: (\w+))}}$", rf"{{\1, {NEWER}: \2}}")
    return folder


_WRITER: Final = f"""\
    value = b"".join(parts)
    return value[:1] + {MARK!r} + value[1:]"""

_READER: Final = f"""\
def _head_{NEWER}(value: bytes) -> tuple[_SegmentHeader, int]:
    assert value[1:2] == {MARK!r}
    head, position = _head_{FORMAT}(value[:1] + value[2:])
    return head, position + 1


"""


def as_today(value: bytes) -> bytes:
    """A run as this version writes it, whichever of the two wrote it."""
    if value[0] == NEWER:
        assert value[1:2] == MARK, value[:8].hex()
        return bytes([FORMAT]) + value[2:]
    return value


def _replace(file: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, file.read_text("utf-8"), flags=re.MULTILINE)
    assert count == 1, f"{pattern} stands {count} times in {file}"
    file.write_text(text, encoding="utf-8")
