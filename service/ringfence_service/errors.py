"""Errors for users: exit codes, one sentence each, and configuration problems with a suggested fix.

Every sentence says what is wrong, where, and what to do next, and never contains a secret. The exit
codes are the contract with the process manager.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of a process."""

    DONE = 0
    NO = 1
    USAGE = 2
    BROKER = 3
    FENCED = 4
    CONTRADICTION = 5
    HUNG = 6


class AdminExit(IntEnum):
    """Exit codes of commands that call the admin API, beside those of every process."""

    NOT_FOUND = 3
    CONFLICT = 4
    NOT_ALLOWED = 5
    UNREACHABLE = 6


ConfigPath = tuple[str, ...]
"""Where a setting is: its section, then a name for routes and addresses, then its key."""


class ConfigIssue(NamedTuple):
    """One configuration problem, how to fix it, and where it is."""

    what: str
    fix: str
    paths: tuple[ConfigPath, ...] = ()
    """Two if two routes contradict each other."""

    def __str__(self) -> str:
        return f"{self.what}; {self.fix}."


class ExitError(Exception):
    """A foreseeable end of the process: a sentence for stderr and the exit code."""

    def __init__(self, exit_code: ExitCode | AdminExit, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


def missing_inputs(*names: str) -> str:
    """Return what is awaited while inputs do not exist or are kept from us, and what to do.

    A broker does not say which it is.
    """
    return (
        f"the input {', '.join(names)}: it does not exist, or may not be read; create it, or "
        "grant READ, DESCRIBE and DESCRIBE_CONFIGS on it"
    )


Awaits = Callable[[], str | None]
"""Returns what is still awaited, as a sentence; None if deciding may be tried again.

It is called in each turn of the loop, so it does no I/O.
"""


class AwaitedError(Exception):
    """A record cannot be decided yet, and is not at fault: its partition waits, and no other."""

    def __init__(self, sentence: str, awaits: Awaits) -> None:
        """`sentence` is what it awaits now, `awaits` what it awaits later."""
        super().__init__(sentence)
        self.sentence, self.awaits = sentence, awaits
        self.source: tuple[str, int] | None = None
        """Topic and number of the partition that waits, once it is known."""
