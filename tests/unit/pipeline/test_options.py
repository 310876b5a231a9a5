"""What the commands on Spark show: names as they are called, and no character that acts."""

import io
import os
import signal

import pytest
import typer
from rich.table import Table

from ringfence_pipeline.options import TerminalOutput, duration_s, spark_command


def test_no_name_acts_on_the_terminal_or_is_taken_for_markup() -> None:
    shown = Table("address\x9b", title="t\u202e")
    shown.add_row("[red]a\x1b[2J\r")
    out = io.StringIO()
    terminal = TerminalOutput(file=out)
    terminal.print(shown)
    terminal.print("[b]\x1bc")
    for told in (r"t\u202e", r"address\x9b", r"[red]a\x1b[2J\x0d", r"[b]\x1bc"):
        assert told in out.getvalue()


def test_sigterm_interrupts_a_command_as_ctrl_c_does() -> None:
    former = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt), spark_command(uses_spark=False):
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_duration_is_a_number_and_a_unit() -> None:
    assert [duration_s(text) for text in ("10s", "5m", "6h", "2d")] == [10, 300, 21_600, 172_800]


@pytest.mark.parametrize("text", ["", "s", "0s", "10", "1.5h", "-1s", "1w"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration"):
        duration_s(text)
