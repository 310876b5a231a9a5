"""The command line on a real service: an operator learns why a record was dropped and fixes it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.broker.letters_world import PARTITIONS, Letters
from tests.broker.service import REPOSITORY, ringfence
from tools.broker.cluster import Broker

pytestmark = pytest.mark.broker

COUNT: Final = 28
ADDRESS: Final = "a3"
"""Of numbers 3, 10, 17 and 24."""
ID: Final = "id-3"


class Operator:
    """Runs commands in a shell, in whose environment the service is named."""

    def __init__(self, letters: Letters, home: Path) -> None:
        self._environ = {"RINGFENCE_URL": letters.service.url, "XDG_CONFIG_HOME": str(home)}

    def runs(self, *words: str, code: int = 0) -> str:
        """Run a command that ends with this code, and return what it prints."""
        ran = ringfence(*words, "--timeout", "30", **self._environ)
        assert ran.returncode == code, f"{words} ended with {ran.returncode}\n{ran.stderr}"
        return ran.stdout

    @contextmanager
    def follows(self, output: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a command that goes on until it is interrupted, and prints to a file."""
        with (
            output.open("wb") as stream,
            subprocess.Popen(
                [sys.executable, "-m", "ringfence_main.entry", *words, "--timeout", "10"],
                stdout=stream,
                cwd=REPOSITORY,
                env={**os.environ, **self._environ},
                stdin=subprocess.DEVNULL,
                # What a shell runs in the background, the tests perhaps, hears no Ctrl-C.
                preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def reads(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Run a command and return its document."""
        document: dict[str, Any] = json.loads(self.runs(*words, "--json", code=code))
        return document


def test_an_operator_finds_out_why_a_record_was_dropped_and_lets_it_through(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    group = topic_name("cli")
    with Letters(broker.client_properties, tmp_path, group) as letters:
        operator = Operator(letters, tmp_path)
        letters.send(0, COUNT, "first")
        letters.send(0, COUNT, "again")
        letters.service.start()
        letters.wait_letters(COUNT)
        refused = sorted(n for n in range(COUNT) if n % 7 == 3)
        original = f"{letters.input}-{3 % PARTITIONS}@0"

        assert operator.reads("status")["status"]["duplicates"] == COUNT
        listed = operator.reads("address", "ls")["addresses"]
        assert sum(each["ids_held"] for each in listed) == COUNT
        held = operator.reads("address", "show", ADDRESS)
        assert (held["ids_held"], held["duplicates"]) == (len(refused), len(refused))

        found = operator.reads("dead-letter", "ls", "--address", ADDRESS)["dead_letters"]
        assert sorted(each["id"] for each in found) == sorted(f"id-{n}" for n in refused)
        (letter,) = [each for each in found if each["id"] == ID]
        place = f"{letter['topic']}-{letter['partition']}@{letter['offset']}"
        source = letter["source"]
        for subject in (place, f"{source['topic']}-{source['partition']}@{source['offset']}"):
            answer = operator.runs("why", subject)
            assert f"duplicate of\t{original}\n" in answer
            assert f"accepted record\t{original}\n" in answer
        assert f"accepted record\t{original}\n" in operator.runs("why", original)

        operator.runs("id", "get", ADDRESS, ID)
        operator.runs("id", "forget", ADDRESS, ID, code=2)
        operator.runs("id", "forget", ADDRESS, ID, "--yes", "--reason", "sent again")
        operator.runs("id", "get", ADDRESS, ID, code=3)
        letters.send(3, 1, "third")
        letters.until(lambda: letters.values(letters.output)[b"third-3"] == 1)

        order = ("--mode", "forget", "--address", ADDRESS, "--because", "duplicate")
        assert operator.reads("redrive", "start", *order, "--dry-run")["matched"] == len(refused)
        operator.runs("redrive", "start", *order, "--yes", "--watch", "--reason", "let through")
        (job,) = operator.reads("redrive", "ls")["redrives"]
        assert (job["state"], job["progress"]["accepted"]) == ("done", len(refused))
        written = letters.values(letters.output)
        assert all(written[f"again-{n}".encode()] == 1 for n in refused)
        assert written.total() == COUNT + 1 + len(refused)

        found = operator.reads("dead-letter", "ls", "--limit", "1000")["dead_letters"]
        other = next(each for each in found if each["address"] != ADDRESS)
        place = f"{other['topic']}-{other['partition']}@{other['offset']}"
        operator.runs("redrive", "start", "--mode", "through", place, "--yes", "--watch")
        newer = operator.reads("why", place)["newer_dead_letter"]
        assert (newer["redrives"], newer["source"]) == (1, other["source"])
        marker = f"{newer['topic']}-{newer['partition']}@{newer['offset'] + 1}"
        operator.runs("why", marker, code=3)
        total = len(refused) + 1
        letters.until(lambda: operator.reads("status")["status"]["redriven"] == total)
        letters.service.kill()
        operator.runs("status", code=6)


def test_tail_tells_each_dead_letter_once_over_a_death_of_the_service(
    broker: Broker, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    with Letters(broker.client_properties, tmp_path, topic_name("tail")) as letters:
        letters.send(0, COUNT, "first")
        letters.service.start()
        letters.service.wait_ready()
        operator, output = Operator(letters, tmp_path), tmp_path / "tail"

        def tailed() -> list[dict[str, Any]]:
            return [json.loads(line) for line in output.read_text().splitlines()]

        def places(told: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
            return [(each["partition"], each["offset"]) for each in told]

        words = ("dead-letter", "tail", "--json", "--every", "0.2")
        with operator.follows(output, *words) as tail:
            sent = 0

            def has_begun() -> bool:
                nonlocal sent
                letters.send(sent % COUNT, 1, "again")
                sent += 1
                return bool(tailed())

            letters.until(has_begun)
            letters.wait_letters(sent)
            listing = ("dead-letter", "ls", "--oldest", "--limit", "1000")
            before = places(operator.reads(*listing)["dead_letters"])
            letters.service.kill()
            letters.service.start()
            letters.service.wait_ready()
            letters.send(0, COUNT, "third")
            letters.wait_letters(COUNT)
            # It begins at the end of each partition, which it reads one after the other.
            begun = dict(sorted(places(tailed()), reverse=True))
            due = [
                place
                for place in places(operator.reads(*listing)["dead_letters"])
                if place not in before or place[1] >= begun.get(place[0], place[1] + 1)
            ]
            assert len(due) > COUNT
            letters.until(lambda: set(due) <= set(places(tailed())))
            tail.send_signal(signal.SIGINT)
            assert tail.wait(30) == 130
        assert sorted(places(tailed())) == sorted(due), "each is printed once"
