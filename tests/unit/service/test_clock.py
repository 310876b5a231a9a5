"""How a process ends whose work is done."""

import subprocess
import sys

BUSY = """
import threading, time
from ringfence_service.clock import leave
threading.Thread(target=time.sleep, args=(600,)).start()
print("written")
leave(4)
"""


def test_who_leaves_waits_for_no_thread_and_what_was_written_is_read() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", BUSY], capture_output=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (4, b"written\n")
