"""A service with authentication as a process of its own, whose memory can be read from outside.

Run it with a folder. It prints the ports of its API and of its probes, and serves until it is
killed. No loop answers its queries, so each request that asks one waits.
"""

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.venue import free_port
from ringfence_api.app import ALL
from ringfence_api.restored import require_restored
from ringfence_api.server import listening
from ringfence_service.peers.protocol import StatusReply
from ringfence_service.peers.server import PeerServer
from ringfence_service.peers.signing import PeerKey
from ringfence_service.queries.inbox import QueryInbox
from tests.api.fake_service import RUNNING, Clock, make_view
from tests.api.guarded import guarded, settings

ASK_TIMEOUT_S: Final = 2.0


def main(folder: Path) -> None:
    """Serve until the process is killed."""
    api = settings(folder, port=0, probe_port=free_port())
    inbox, key = QueryInbox(depth=256), PeerKey(api.peer_token_file)
    view = replace(
        guarded(make_view(RUNNING, Clock(), inbox), api),
        ask_timeout_s=ASK_TIMEOUT_S,
        peer_server=PeerServer(
            inbox, lambda: StatusReply("0.1.0", 7, RUNNING), require_restored, key
        ),
    )
    handle = listening(view, ALL, api)
    print(handle.url.rpartition(":")[2], api.probe_port, flush=True)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        sys.stdout = nowhere  # nobody reads the log, and a full pipe would stop the service
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
