"""Shared parts of the Spark commands: options, error handling, properties files."""

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

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_service.errors import ExitError
from ringfence_service.printable import visible

ClientProperties = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="File of Java client properties, as Kafka's tools take it.",
    ),
]
Jars = Annotated[
    Path | None,
    typer.Option(
        envvar="RINGFENCE_SPARK_JARS",
        exists=True,
        file_okay=False,
        help="Folder of the jars; by default .run/spark-jars, which Maven fills once.",
    ),
]
Master = Annotated[
    str | None, typer.Option(help="Spark master; by default local[*]. Not with spark-submit.")
]
Conf = Annotated[
    list[str] | None,
    typer.Option(help="Setting of Spark, spark.name=value, repeatable. Not with spark-submit."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Serve Prometheus metrics of the run at this port."),
]
MetricsHost = Annotated[str, typer.Option(help="The address at which metrics are served.")]
METRICS_HOST: Final = "127.0.0.1"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def duration_s(text: str) -> int:
    """Return the seconds of a duration such as `10s`, `5m`, `6h` or `2d`; a usage error if none."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and int(number) and unit in _SECONDS):
        raise typer.BadParameter(f"{text!r} is not a duration such as 10s, 5m, 6h or 2d")
    return int(number) * _SECONDS[unit]


_SPARK: Final = "4.0."
"""What versions of Spark begin with that have what the jobs, the connector and Delta use."""


class TerminalOutput(Console):
    """A console that escapes control characters, since names may come from any publisher."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - passed on unchanged
        """Render text with control characters escaped; rich calls this for table cells too."""
        return super().render_str(visible(text, keep="\n"), **(options | {"markup": False}))


@contextmanager
def spark_command(*, uses_spark: bool = True) -> Iterator[None]:
    """Run a command: SIGTERM interrupts it like Ctrl-C; errors become a sentence and an exit code.

    One that uses Spark is refused if another version is installed.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        if uses_spark:
            _check_spark()
        yield
    except ModuleNotFoundError as error:
        _end(f'{error.name} is not installed: pip install "ringfence-server[spark]"', USAGE)
    except PipelineError as error:
        _end(str(error), error.exit_code)
    except ExitError as error:
        _end(error.sentence, error.exit_code)


def _check_spark() -> None:
    import pyspark  # noqa: PLC0415 - --help works without Spark

    if not pyspark.__version__.startswith(_SPARK):
        raise PipelineError(
            f"pyspark {pyspark.__version__} is installed here, and the jobs run on Spark 4.0: use "
            'a cluster of that version, or pip install "pyspark>=4.0,<4.1"',
            exit_code=USAGE,
        )


def properties_of(file: Path | None) -> dict[str, str]:
    """Return the properties of a file, or none without a file."""
    return {} if file is None else read_properties(file)


def read_properties(file: Path) -> dict[str, str]:
    """Return the `name=value` lines of a properties file; # and ! begin a comment.

    Raises PipelineError for any other line.
    """
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
    print(text, file=sys.stderr)  # noqa: T201 - the error message of a command
    raise typer.Exit(exit_code)
