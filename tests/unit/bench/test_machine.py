"""What the kernel tells of a process is read right."""

import os
import subprocess
import time
from pathlib import Path

from bench.machine import MIB, busy_s, cpu_s, disk_bytes, kind_of, memory, memory_in, thread_in


def test_memory_is_reported_in_bytes() -> None:
    assert memory_in("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n") == (MIB, 2 * MIB)


def test_a_thread_may_have_any_name() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"7 (a ) b(c) R {' 0' * 10} {3 * ticks} {ticks} 0"
    assert thread_in(stat) == ("a ) b(c", 4.0)


def test_threads_are_distinguished_by_name_and_the_main_thread_by_its_number() -> None:
    assert kind_of("rdk:broker1", is_main=False) == "Kafka client"
    assert kind_of("rocksdb:low", is_main=False) == "RocksDB"
    assert kind_of("python", is_main=True) == "main thread"
    assert kind_of("python", is_main=False) == "other threads"


def test_we_ourselves_use_memory_and_time() -> None:
    now, peak = memory(os.getpid())
    assert peak >= now > MIB
    assert cpu_s(os.getpid())["main thread"] > 0


def test_what_a_process_has_started_counts_with_it() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        alone, together = memory(child.pid), memory(os.getpid())
        threads = cpu_s(os.getpid())
        child.kill()
    assert together.now > alone.now + MIB
    assert threads["supervisor"] > 0
    assert "main thread" in threads


def test_a_folder_takes_what_its_files_take(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(os.urandom(MIB))
    assert disk_bytes(tmp_path) >= MIB


def test_the_machine_has_spent_what_this_process_has_spent() -> None:
    busy, own = busy_s(), time.process_time()
    while time.process_time() < own + 0.2:
        pass
    assert busy_s() >= busy + 0.1  # ticks are counted where they end
