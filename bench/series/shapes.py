"""Shapes series: the candidates for the shape of a ring, compared (ADR 4)."""

import json
import subprocess
import sys
from typing import Final

from bench.arms import ROOT
from bench.finding import Figure, Finding, Row
from bench.machine import MIB
from bench.session import Session
from bench.shapes import STRETCH, Cost

IDS: Final = (20_000, 1_000_000, 10_000_000)
_TITLES: Final = {
    "objects": "ids in memory, in Python",
    "whole": "ids in memory, compiled",
    "stored": "ids in segments and files, compiled",
    "entries": "a RocksDB entry per id",
}


def shapes(session: Session) -> Finding:
    """Measure every shape with an increasing number of ids, each in its own process."""
    rows: list[Row] = []
    for count in IDS:
        for shape, title in _TITLES.items():
            ids = session.scaled(count)
            one = _cost(shape, ids)
            session.say(f"{title}, {ids:,} ids: {one.wall_us:.2f} µs an id")
            rows.append(
                {
                    "shape": f"{title}, {ids:,}",
                    "µs an id": one.wall_us,
                    "µs of CPU an id": one.cpu_us,
                    "resident memory, MiB": one.rss_bytes / MIB,
                    "disk, bytes an id": one.disk_bytes / ids,
                    "duplicates found": one.duplicates,
                }
            )
    title = "The shape of a ring: deciding and remembering, without Kafka"
    figure = Figure(title, "shape", ["µs an id", "µs of CPU an id"], "microseconds", bars=True)
    return Finding(title, {"ids while full": f"{STRETCH:,}", "copies": "10%"}, rows, [figure])


def _cost(shape: str, ids: int) -> Cost:
    command = [sys.executable, "-m", "bench.shapes", shape, str(ids)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Cost(**json.loads(done.stdout))
