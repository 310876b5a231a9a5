"""Leave: how a process ends whose work is done."""

import logging
import os
import sys
from typing import NoReturn


def leave(code: int) -> NoReturn:
    """End now, with all that was written flushed.

    The interpreter's own end destroys each Kafka client in turn and waits for its threads: seconds
    on a busy machine, of the few that SIGTERM leaves, and nothing is left for them to do.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
