"""Connection flood: thousands of incomplete requests and idle connections, from many addresses.

`make bench-flood` prints the response times of `/livez` on the probe port during the flood, the
memory of the process that serves the API, and the cost of the records that were decided in that
time, compared with some seconds before and after. Then another process takes as much CPU as the
flood did: what the rate loses to that is not a cost of the connections.
"""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.arms import RINGFENCE, running
from bench.asking import Answers, ask, await_ready
from bench.burning import burning
from bench.progress import Point
from bench.series.asking import Spell, Trio, spell
from bench.venue import free_port, open_venue
from bench.workload import Workload
from ringfence_service.supervisor.watchdog import raise_descriptor_limit
from tools.errors import ToolError

_HOST: Final = "127.0.0.1"
_ADDRESSES: Final = 100
_HEAD: Final = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: " + b"x" * 200_000
_AGAIN_S: Final = 1.0
_PROBE_EVERY_S: Final = 0.05
_PROBE_MAX_S: Final = 5.0
_SHARE: Final = 0.99
_CALM_S: Final = 8.0
_BURNT_S: Final = 30.0


def main() -> int:
    """Serve at full load, flood, probe all the time, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.flood", description=__doc__)
    parser.add_argument("--half-requests", type=int, default=6_000)
    parser.add_argument("--idle", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--records", type=int, default=20_000_000)
    given = parser.parse_args()
    probe_port = free_port()
    os.environ["RINGFENCE_API__PROBE_PORT"] = str(probe_port)
    workload = Workload(records=given.records)
    try:
        with (
            open_venue() as venue,
            venue.reading(RINGFENCE, workload) as stage,
            running(RINGFENCE, stage) as one,
            closing(venue.follow(stage, workload, one.check)) as points,
        ):
            await_ready(stage, one.check)
            pid = _serving(one.pid, stage.api_port)
            _spell(points, one.pid, _CALM_S)  # the start does not count
            before = _spell(points, one.pid, _CALM_S)
            calm_bytes = _resident_bytes(pid)
            with (
                _flooded(stage.api_port, given.half_requests, given.idle) as flood,
                _probed(probe_port) as probes,
            ):
                used_s = [_cpu_s(flood), _cpu_s(pid)]
                flooded = _spell(points, one.pid, given.seconds)
                used_s = [_cpu_s(flood) - used_s[0], _cpu_s(pid) - used_s[1]]
                peak_bytes = _resident_bytes(pid, "VmHWM")
            between = _spell(points, one.pid, _CALM_S)
            cores = [each / flooded.seconds for each in used_s]
            with burning(cores[0]):
                burnt = _spell(points, one.pid, _BURNT_S)
            trio = Trio(before, flooded, between)
            control = Trio(between, burnt, _spell(points, one.pid, _CALM_S))
            refused = sum(
                float(line.rpartition(" ")[2])
                for line in ask(stage, "/metrics").decode().splitlines()
                if line.startswith("ringfence_http_connections_refused_total{")
            )
    except ToolError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    ordered = sorted(probes.took_ms)
    print(f"probes answered: {len(ordered)}, lost: {probes.refused}")
    print(f"/livez: median {statistics.median(ordered):.1f} ms,", end=" ")
    print(f"p99 {ordered[int(len(ordered) * _SHARE)]:.1f} ms, slowest {ordered[-1]:.1f} ms")
    print(f"resident memory: {calm_bytes / 1e6:.0f} MB before, {peak_bytes / 1e6:.0f} MB at most")
    print(f"connections refused: {refused:,.0f}")
    print(f"cores: {cores[0]:.2f} for the flood, {cores[1]:.2f} for the process of the API")
    for name, three in ("flooded", trio), ("as much CPU taken", control):
        rates = ", ".join(f"{each.rate:,.0f}" for each in three)
        print(f"records/s before, {name}, after: {rates}")
        print(f"rate / left alone: {three.rate_ratio:.2f},", end=" ")
        print(f"the loop's CPU a record / left alone: {three.loop_ratio:.2f}")
    print(f"rate flooded / as much CPU taken: {trio.rate_ratio / control.rate_ratio:.2f}")
    return 0


def _spell(points: Iterator[Point], pid: int, seconds: float) -> Spell:
    found = spell(points, pid, seconds_min=seconds)
    if found is None:
        raise ToolError("all records were read too soon: set a higher --records")
    return found


@contextmanager
def _flooded(port: int, half_requests: int, idle: int) -> Iterator[int]:
    """Flood from another process, so that it does not delay the probes; yield its process id."""
    flood = multiprocessing.get_context("spawn").Process(
        target=_flood, args=(port, half_requests, idle), daemon=True
    )
    flood.start()
    assert flood.pid is not None  # it has been started
    try:
        yield flood.pid
    finally:
        flood.kill()
        flood.join()


def _flood(port: int, half_requests: int, idle: int) -> None:
    """Hold as many connections as the service accepts, and keep retrying the others."""
    raise_descriptor_limit()

    async def hold(number: int) -> None:
        source = f"127.0.1.{number % _ADDRESSES + 1}"
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(_HOST, port, local_addr=(source, 0))
                if number < half_requests:
                    writer.write(_HEAD)
                await reader.read()
                writer.close()
            await asyncio.sleep(_AGAIN_S)

    async def all_of_them() -> None:
        await asyncio.gather(*map(hold, range(half_requests + idle)))

    asyncio.run(all_of_them())


@contextmanager
def _probed(port: int) -> Iterator[Answers]:
    """Send probes while the block runs; one without a response counts as refused."""
    answers, is_over = Answers(), threading.Event()

    def probe() -> None:
        while not is_over.wait(_PROBE_EVERY_S):
            began_s = time.monotonic()
            try:
                url = f"http://{_HOST}:{port}/livez"
                with urllib.request.urlopen(url, timeout=_PROBE_MAX_S):
                    answers.took_ms.append((time.monotonic() - began_s) * 1000)
            except OSError:
                answers.refused += 1

    prober = threading.Thread(target=probe, daemon=True)
    prober.start()
    try:
        yield answers
    finally:
        is_over.set()
        prober.join()


def _cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serving(pid: int, port: int) -> int:
    """Return the process that listens on the port: the given one or one of its children."""
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    }
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (pid, *map(int, children)):
        for link in Path(f"/proc/{each}/fd").iterdir():
            with suppress(OSError):
                if str(link.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                    return each
    raise ToolError(f"neither process {pid} nor a child of it listens on port {port}")


def _resident_bytes(pid: int, name: str = "VmRSS") -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines)
    return int(fields[name].split()[0]) * 1024


if __name__ == "__main__":
    sys.exit(main())
