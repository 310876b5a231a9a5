"""What the commands on Spark have in common: options, how they end, what a properties file says."""

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.text import Text

from pipeline.errors import USAGE, PipelineError
from service.errors import ExitError
from service.printable import visible

ClientProperties = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="Properties of the Java client, as Kafka's tools."
    ),
]
Jars = Annotated[
    Path | None,
    typer.Option(
        envvar="RINGFENCE_SPARK_JARS",
        exists=True,
        file_okay=False,
        help="Folder of the jars; without it, Maven fills .run/spark-jars once.",
    ),
]

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How `s3a://bucket` begins, once it has been taken for a path."""


def a_path(given: Path | None) -> Path | None:
    """A folder of tables, as an option's callback; an address would be a folder of that name."""
    if given is not None and _ADDRESS.match(str(given)):
        raise typer.BadParameter(
            "it is an address, and tables are read and written as files: mount the storage where "
            "the job runs and give the path of the mount, such as /mnt/lake/tables"
        )
    return given


def a_folder(given: Path | None) -> Path | None:
    """The same of a folder that is there."""
    found = a_path(given)
    if found is not None and not found.is_dir():
        raise typer.BadParameter(f"{found} is no folder: check its name")
    return found


class TerminalOutput(Console):
    """Where a command shows what it found; names may come from any publisher, and are only seen."""

    def render_str(self, text: str, **given: Any) -> Text:  # noqa: ANN401 - handed on as it came
        """All text that is shown comes by here, a cell of a table too."""
        return super().render_str(visible(text, keep="\n"), **(given | {"markup": False}))


@contextmanager
def spark_command() -> Iterator[None]:
    """Ended by SIGTERM as by Ctrl-C; what goes wrong is a sentence and an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    except ModuleNotFoundError as error:
        _end(f"{error.name} is not installed: pip install -r requirements/spark.txt", USAGE)
    except PipelineError as error:
        _end(str(error), error.exit_code)
    except ExitError as error:
        _end(error.sentence, error.exit_code)


def properties_of(file: Path | None) -> dict[str, str]:
    """The properties of a file, or none."""
    return {} if file is None else read_properties(file)


def read_properties(file: Path) -> dict[str, str]:
    """The `name=value` lines of a properties file; # and ! begin a comment."""
    properties: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        entry = line.strip()
        if not entry or entry.startswith(("#", "!")):
            continue
        name, separator, value = entry.partition("=")
        if not separator or not name.strip():
            raise PipelineError(
                f"{file}, line {number}: not of the form name=value", exit_code=USAGE
            )
        properties[name.strip()] = value.strip()
    return properties


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end(sentence: str, exit_code: int) -> NoReturn:
    text = visible(f"ringfence pipeline: {sentence}", keep="\n")
    print(text, file=sys.stderr)  # noqa: T201 - what a command says
    raise typer.Exit(exit_code)
