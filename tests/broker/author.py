"""The publishing program under a test's hands: started, killed, and waited for."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ringfence.publish_file import Owner
from ringfence.publish_store import PublishStore, Room
from tools.broker.embedded import LAUNCH

REPOSITORY = Path(__file__).parents[2]


class Author:
    """See `publishing`; a context manager that leaves no process behind."""

    def __init__(
        self,
        folder: Path,
        client: Mapping[str, str],
        *,
        topic: str,
        count: int,
        pause_s: float,
        admin_url: str,
        group_id: str,
    ) -> None:
        self.topic = topic
        self.count = count
        self._store = folder / "author.store"
        self._log = folder / "author.log"
        publisher: dict[str, Any] = {
            "name": "author",
            "topic": topic,
            "store": str(self._store),
            "bootstrap_servers": client["bootstrap.servers"],
            "kafka": dict(client),
            "admin_url": admin_url,
            "group_id": group_id,
        }
        first = str(folder / "author.first")
        self._settings = json.dumps(
            {"count": count, "pause_s": pause_s, "first": first, "publisher": publisher}
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def start(self) -> None:
        attached = [sys.executable, "-I", "-S", str(LAUNCH), "attached", str(os.getpid())]
        program = [sys.executable, "-m", "tests.broker.publishing", self._settings]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*attached, *program],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "it was never started"
        return self._process

    def kill(self) -> None:
        """As `kill -9` does; only what still runs proves anything."""
        assert self.process.poll() is None, f"it had ended before\n{self.tail()}"
        self.process.kill()
        self.process.wait(10)

    def wait(self, limit_s: float) -> None:
        """Until it has ended by itself, with everything acknowledged."""
        status = self.process.wait(limit_s)
        assert status == 0, f"status {status}\n{self.tail()}"

    def pending(self) -> int:
        """How many messages its store holds, now that it has ended."""
        owner = Owner("author", self.topic, self.topic)
        store = PublishStore(str(self._store), owner, Room(10**9, 10**12), 0)
        try:
            return store.pending
        finally:
            store.close()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
