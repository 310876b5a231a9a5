"""Target: the folder of a backfill: verdicts, a checkpoint with all that is remembered, a note.

The note tells how both were made, and all three belong together: what is remembered under other
settings answers other questions.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pipeline.backfill.columns import VERDICTS
from pipeline.backfill.inputs import Inputs
from pipeline.errors import CONTRADICTION, USAGE, PipelineError
from pipeline.tables import JOURNALS
from service.config import RouteSettings

TableFormat = Literal["delta", "parquet"]


class Target(NamedTuple):
    """See the module."""

    folder: Path

    @property
    def verdicts(self) -> Path:
        """The table."""
        return self.folder / "verdicts"

    @property
    def checkpoint(self) -> Path:
        """How far was read, and what is remembered."""
        return self.folder / "checkpoint"

    @property
    def steps(self) -> Path:
        """A table that is read, in the order of its decisions."""
        return self.folder / "steps"

    @property
    def is_begun(self) -> bool:
        """Whether a batch was planned."""
        return any((self.checkpoint / "offsets").glob("[0-9]*"))

    @property
    def _made(self) -> Path:
        return self.folder / "backfill.json"

    def settle(self, inputs: Inputs, source: Mapping[str, object], format_: TableFormat) -> None:
        """Begin a folder, or PipelineError where this one was begun otherwise or is half gone."""
        settings = {
            "format": 1,
            "table_format": format_,
            "source": dict(source),
            "inputs": _plain(inputs),
        }
        if self._made.exists():
            self._compare(json.loads(self._made.read_text(encoding="utf-8")), settings)
            self._check_halves(format_)
            return
        if self.verdicts.exists() or self.checkpoint.exists():
            raise PipelineError(
                f"{self.folder} has no {self._made.name}, which tells how it was made: "
                "give another folder, or delete this one",
                exit_code=CONTRADICTION,
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self._made.with_suffix(".new")
        beside.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        beside.rename(self._made)

    def format(self) -> TableFormat:
        """How the table is kept; PipelineError where there is none."""
        found: TableFormat = self._note()["table_format"]
        return found

    def inputs(self) -> Inputs:
        """What was read, and how it was decided; PipelineError where nothing was."""
        made: dict[str, Any] = self._note()["inputs"]
        routes = [{key: _frozen(value) for key, value in each.items()} for each in made["routes"]]
        made |= {"routes": tuple(RouteSettings(**each) for each in routes)}
        return Inputs(cache_memory_bytes=0, **made | {"topics": tuple(made["topics"])})

    def _note(self) -> dict[str, Any]:
        if not self._made.exists():
            raise PipelineError(
                f"{self.folder} is no folder of a backfill: run `ringfence pipeline backfill` "
                "into it first",
                exit_code=USAGE,
            )
        note: dict[str, Any] = json.loads(self._made.read_text(encoding="utf-8"))
        return note

    def _compare(self, made: Mapping[str, object], now: Mapping[str, object]) -> None:
        other = sorted(_differences(made, now))
        if other:
            raise PipelineError(
                f"{self.folder} was made with another {', '.join(other)}: what it remembers "
                "belongs to that; give another folder, or the configuration that it was made with",
                exit_code=CONTRADICTION,
            )

    def _check_halves(self, format_: TableFormat) -> None:
        """Refuse half a target: a batch would be lost, or written twice."""
        listed = any(self.verdicts.glob(JOURNALS[format_]))
        done = any((self.checkpoint / "commits").glob("[0-9]*"))
        if (listed and not self.is_begun) or (done and not listed):
            raise PipelineError(
                f"{self.verdicts} and {self.checkpoint} do not belong together: one of them was "
                "deleted; delete the other too and begin anew",
                exit_code=CONTRADICTION,
            )


def read_verdicts(spark: SparkSession, folder: Path) -> DataFrame:
    """The verdicts that were found so far; none before the first."""
    target = Target(folder)
    format_ = target.format()
    if not any(target.verdicts.glob(JOURNALS[format_])):
        return spark.createDataFrame([], VERDICTS)
    return spark.read.format(format_).load(str(target.verdicts))


def _frozen(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    return tuple(value) if isinstance(value, list) else value


def _plain(inputs: Inputs) -> dict[str, Any]:
    """What decides, as JSON has it."""
    decides = {name: told for name, told in asdict(inputs).items() if name != "cache_memory_bytes"}
    plain: dict[str, Any] = json.loads(json.dumps(decides))
    return plain


def _differences(one: object, other: object, name: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        found = [
            _differences(one.get(key), other.get(key), f"{name}.{key}" if name else str(key))
            for key in names
        ]
        return set().union(*found)
    return set() if one == other else {name.removeprefix("inputs.")}
