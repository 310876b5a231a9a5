"""Development broker: `python -m tools.broker up | down | status [--folder FOLDER]`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.broker import detached
from tools.errors import ToolError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 if `status` finds no broker, or 3 if the command failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.broker", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("--folder", type=Path, default=detached.DEFAULT_FOLDER)
    given = parser.parse_args(arguments)
    try:
        return _run(given.command, given.folder)
    except ToolError as error:
        print(error, file=sys.stderr)
        return 3


def _run(command: str, folder: Path) -> int:
    if command == "up":
        print(detached.up(folder))
        return 0
    if command == "down":
        print("stopped" if detached.down(folder) else "not running")
        return 0
    running = detached.status(folder)
    print(running or "not running")
    return 0 if running else 1


if __name__ == "__main__":
    sys.exit(main())
