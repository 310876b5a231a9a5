"""A program that publishes the numbers 0, 1, 2, ... and goes on where its last life ended.

    python -m tests.broker.publishing FILE     (JSON: the arguments below)

It ends with status 0 when all are acknowledged, and has no idea whether it is killed meanwhile.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ringfence_client.publisher.publisher import Publisher

BURST = 50
ALL_ACKNOWLEDGED_S = 120.0


def main(*, count: int, pause_s: float, first: str, publisher: dict[str, Any]) -> int:
    with Publisher(**publisher) as sender:
        begin = Path(first)
        if not begin.exists():
            # Before the first message: what was given then is where the numbers begin.
            written = begin.with_suffix(".new")
            written.write_text(str(sender.last_number))
            os.replace(written, begin)  # noqa: PTH105 - it says what it is for: at once or not
        done = sender.last_number - int(begin.read_text())
        for number in range(done, count):
            sender.publish(b"%d" % number, key=b"k%d" % (number % 10))
            if number % BURST == 0:
                time.sleep(pause_s)  # noqa: TID251 - a publisher has something to say now and then
        return 0 if sender.flush(ALL_ACKNOWLEDGED_S) else 1


if __name__ == "__main__":
    sys.exit(main(**json.loads(Path(sys.argv[1]).read_text("utf-8"))))
