"""The README's own topics: every block is typed in its order, up to the first duplicate."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.support.pages import block
from tests.support.waiting import eventually
from tools.broker.config import free_port

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("embedded_kind")]

README: Final = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
COMMAND_S: Final = 300.0
END_S: Final = 60.0


class Reader(NamedTuple):
    """A person with a terminal in a folder that has the checkout's environment."""

    folder: Path
    environment: dict[str, str]

    def types(self, commands: str) -> str:
        """Run commands and return what they print; the last one's exit status has to be 0."""
        done = subprocess.run(
            ["bash", "-ec", commands],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def lines(word: str) -> list[str]:
    """The commands of the block with a word, without comments."""
    return [re.sub(r"\s+#.*", "", line) for line in block(README, "", word).splitlines()]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """A reader whose broker has a folder of its own, since it may be started and stopped."""
    (tmp_path / ".venv").symlink_to(sys.prefix)
    port = free_port(0)
    address = {"RINGFENCE_API__PORT": str(port), "RINGFENCE_URL": f"http://127.0.0.1:{port}"}
    reader = Reader(tmp_path, {**os.environ, **address})
    yield reader
    reader.types(".venv/bin/ringfence broker down --folder broker")


def test_the_commands_of_the_readme_lead_to_a_duplicate_and_its_explanation(reader: Reader) -> None:
    up, topic = (f"{line} --folder broker" for line in lines("broker topic"))
    address = reader.types(up).strip()
    reader.types(topic)
    configuration = block(README, "toml", "[[routes]]").replace("127.0.0.1:9092", address)
    (reader.folder / "ringfence.toml").write_text(configuration)
    check, serve = lines("serve --config")
    assert "is good" in reader.types(check)
    service = subprocess.Popen(serve.split(), cwd=reader.folder, env=reader.environment)
    try:
        status, dead_letters, why = lines("why orders")
        ready = f"curl --silent --fail {reader.environment['RINGFENCE_URL']}/readyz || echo later"
        eventually(lambda: "later" not in reader.types(ready))
        program = block(README, "python", "_DUPL_ID").replace("127.0.0.1:9092", address)
        (reader.folder / "send.py").write_text(program)
        reader.types(".venv/bin/python send.py")
        eventually(lambda: re.search(r"^duplicates\t1\b", reader.types(status), re.MULTILINE))
        assert "orders.dlq-0@0\tduplicate\torders\torder-1" in reader.types(dead_letters)
        assert "its id was accepted at orders-0@0 already" in reader.types(why)
    finally:
        service.terminate()
        assert service.wait(END_S) == 0
