"""Folder of the demo: wiped at the start, kept at the end, used by one demo at a time.

It holds the broker's data, the service's configuration, state and log, and `demo.json`, which
describes the topics that the run left on the broker.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from tools.broker import detached
from tools.demo.errors import DemoError

FOLDER: Final = Path(__file__).parents[2] / ".run" / "demo"


class Left(NamedTuple):
    """The content of `demo.json`: the broker, topics and counts that a run left behind."""

    bootstrap_servers: str
    is_embedded: bool
    input: str
    output: str
    dead_letter: str
    group_id: str
    accepted: int
    duplicates: int


@contextmanager
def fresh_folder(folder: Path = FOLDER) -> Iterator[Path]:
    """Yield the empty folder, locked against a second demo."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_path(folder).open("w") as lock:
        if not takes(lock):
            raise DemoError(
                f"another demo is using {folder}; end it with Ctrl-C, or wait for its end"
            )
        # A broker may have been restarted to read the data of the last run.
        detached.down(broker_folder(folder))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def is_in_use(folder: Path = FOLDER) -> bool:
    """Return whether a demo is running."""
    with lock_path(folder).open("w") as lock:
        return not takes(lock)


def takes(lock: TextIO) -> bool:
    """Try to take the lock, which is held until its file is closed; return whether it worked."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_path(folder: Path) -> Path:
    """Return the path of the lock, which is beside the folder so that it survives the wipe."""
    return folder.with_suffix(".lock")


def broker_folder(folder: Path = FOLDER) -> Path:
    """Return the folder of the embedded broker."""
    return folder / "broker"


def leave(folder: Path, left: Left) -> None:
    """Write `demo.json`."""
    text = json.dumps(left._asdict(), indent=2) + "\n"
    (folder / "demo.json").write_text(text, encoding="utf-8")


def read_left(folder: Path = FOLDER) -> Left:
    """Read the `demo.json` of the last run."""
    try:
        return Left(**json.loads((folder / "demo.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DemoError(
            f"{folder} holds no finished demo ({error}); run `make run ARGS=--exit` first"
        ) from error
