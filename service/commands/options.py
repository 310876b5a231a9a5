"""Options and arguments that several nouns share."""

from pathlib import Path
from typing import Annotated

import typer

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many at most.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="A file, instead of standard output.")
]
Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="Any characters.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="As text; any bytes as hex:… or base64:….")]
