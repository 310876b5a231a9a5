"""What the commands on Spark show: names as they are called, and no character that acts."""

import io

from rich.table import Table

from pipeline.options import TerminalOutput


def test_no_name_acts_on_the_terminal_or_is_taken_for_markup() -> None:
    shown = Table("address\x9b", title="t\u202e")
    shown.add_row("[red]a\x1b[2J\r")
    out = io.StringIO()
    terminal = TerminalOutput(file=out)
    terminal.print(shown)
    terminal.print("[b]\x1bc")
    for told in (r"t\u202e", r"address\x9b", r"[red]a\x1b[2J\x0d", r"[b]\x1bc"):
        assert told in out.getvalue()
