"""Steps of a command that take a while, each announced on stderr before it begins."""

import sys


def say(step: str) -> None:
    """Print what a command does now."""
    print(f"{step} …", file=sys.stderr, flush=True)  # noqa: T201 - for the person who waits
