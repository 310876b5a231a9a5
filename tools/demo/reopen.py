"""Command runner on the last demo's data: `python -m tools.demo.reopen COMMAND…`.

The demo's broker is started again on the same data, unless it still runs, and stopped after the
command. The command gets its address in KAFKA_BOOTSTRAP_SERVERS; in the arguments,
{bootstrap_servers}, {input}, {output}, {dead_letter} and {group_id} are replaced by the values in
`demo.json`. The exit status is that of the command, or 1 if there is no finished demo.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tools.broker import detached
from tools.demo.errors import DemoError
from tools.demo.folder import FOLDER, Left, broker_folder, is_in_use, read_left
from tools.demo.signals import Ended, ended_by_signals
from tools.errors import ToolError


def reopen(command: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    try:
        left = read_left(FOLDER)
        with ended_by_signals():
            # The broker of a demo that still serves, or an external one, is running already.
            if is_in_use(FOLDER) or not left.is_embedded:
                return run(command, left)
            print("starting the broker of the last demo …", file=sys.stderr, flush=True)
            try:
                address = detached.up(broker_folder(FOLDER))
                return run(command, left._replace(bootstrap_servers=address))
            finally:
                detached.down(broker_folder(FOLDER))
    except Ended as end:
        return end.exit_code
    except ToolError as error:
        print(f"tools.demo.reopen: {error}", file=sys.stderr)
        return 1


def run(command: Sequence[str], left: Left) -> int:
    """Run the command against the broker; Ctrl-C reaches the command itself."""
    try:
        arguments = [part.format_map(left._asdict()) for part in command]
    except (KeyError, ValueError, IndexError) as error:
        names = ", ".join(f"{{{name}}}" for name in left._fields)
        raise DemoError(f"{error} cannot be filled in; there are {names}") from error
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": left.bootstrap_servers}
    try:
        return subprocess.run(arguments, check=False, env=environment).returncode
    except FileNotFoundError as error:
        raise DemoError(f"{arguments[0]} is not a program on this machine") from error


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(reopen(sys.argv[1:]))
