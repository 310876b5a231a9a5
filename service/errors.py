"""Errors for users: exit codes, one sentence each, and configuration problems with a suggested fix.

Every sentence says what is wrong, where, and what to do next, and never contains a secret. The exit
codes are the contract with the process manager.
"""

from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """What the status of a finished process means."""

    DONE = 0
    NO = 1
    USAGE = 2
    BROKER = 3
    FENCED = 4
    CONTRADICTION = 5
    HUNG = 6


class AdminExit(IntEnum):
    """What the status of a command that asks the admin API means, where no process has it too."""

    NOT_FOUND = 3
    CONFLICT = 4
    NOT_ALLOWED = 5
    UNREACHABLE = 6


class ConfigIssue(NamedTuple):
    """One thing that is wrong, and what to do about it."""

    what: str
    mend: str

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}."


class ExitError(Exception):
    """A foreseeable end of the process: a sentence for stderr and the code to leave with."""

    def __init__(self, exit_code: ExitCode | AdminExit, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence
