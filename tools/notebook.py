"""Notebook runner: `python -m tools.notebook FILE.ipynb [--save]`.

It runs the code cells in order, in one namespace, and prints what they print, as Jupyter does with
"Restart and run all". A cell that fails ends the run with its traceback. With `--save` the file
gets the outputs, so that a page on the web shows them. It needs no Jupyter.
"""

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast


class _Copied(io.StringIO):
    """Text that is also written to another stream at once."""

    def __init__(self, to: TextIO) -> None:
        super().__init__()
        self._to = to

    def write(self, text: str) -> int:
        self._to.write(text)
        self._to.flush()
        return super().write(text)


def run(file: Path) -> tuple[dict[str, Any], list[str]]:
    """Run the code cells; return their namespace, and what each of them printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, cell in enumerate(code_cells(read(file)), 1):
        code = compile("".join(cell["source"]), f"{file.name}, cell {number}", "exec")
        with redirect_stdout(_Copied(sys.stdout)) as output:
            exec(code, namespace)  # noqa: S102 - a notebook is a program
        printed.append(output.getvalue())
    return namespace, printed


def read(file: Path) -> dict[str, Any]:
    """Return a notebook's document."""
    return cast("dict[str, Any]", json.loads(file.read_text("utf-8")))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a document, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def save(file: Path, printed: Sequence[str]) -> None:
    """Write what each cell printed into the file."""
    notebook = read(file)
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed, strict=True), 1):
        lines = [line.rstrip() + "\n" for line in text.splitlines()]
        output = {"name": "stdout", "output_type": "stream", "text": lines}
        cell |= {"execution_count": number, "outputs": [output] if lines else []}
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Run the notebook that is named, and return the exit status."""
    names = [word for word in words if word != "--save"]
    if len(names) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    _, printed = run(Path(names[0]))
    if "--save" in words:
        save(Path(names[0]), printed)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
