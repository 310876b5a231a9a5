"""Accepted rows: the rows of a table of records that have the verdict `accepted`, as a table.

That is the table without duplicates, with all of its columns. It is a Delta table that is written
in one commit, which names the folder of the backfill.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from ringfence_pipeline.backfill.decider import ACCEPTED
from ringfence_pipeline.backfill.run import (
    BackfillSource,
    BackfillTarget,
    read_verdicts,
    spark_failures,
)
from ringfence_pipeline.errors import CONTRADICTION, PipelineError
from ringfence_pipeline.storage import StorageFolder
from ringfence_pipeline.table_format import JOURNALS

_PLACE: Final = ["topic", "partition", "offset"]
_NOTE: Final = "userMetadata"
"""Delta's name for a text that a commit carries."""


def accepted_rows(table: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Return the rows of a table of records that are accepted, with all columns of the table."""
    accepted = verdicts.where(sf.col("verdict") == ACCEPTED).select(*_PLACE)
    return table.join(accepted, _PLACE, "left_semi").select(*table.columns)


class AcceptedTable(NamedTuple):
    """The table to write, and the backfill that it is for."""

    spark: SparkSession
    folder: StorageFolder
    target: BackfillTarget

    @classmethod
    def of(cls, spark: SparkSession, place: str | Path, backfill: str | Path) -> "AcceptedTable":
        """Return the table at a path or a URI, for the backfill in a folder."""
        target = BackfillTarget(StorageFolder.of(spark, backfill))
        return cls(spark, StorageFolder.of(spark, place), target)

    def check(self) -> None:
        """Raise PipelineError if there is another table; call it before hours of work."""
        self._is_written()

    def write(self, source: BackfillSource, say: Callable[[str], None] = lambda _: None) -> None:
        """Write the accepted rows of the source's table, unless they are written already."""
        if self._is_written():
            say(f"{self.folder} is written already")
            return
        table = StorageFolder.of(self.spark, str(source.table))
        rows = self.spark.read.format(source.table_format).load(str(table))
        found = accepted_rows(rows, read_verdicts(self.spark, str(self.target.folder)))
        with spark_failures(f"{self.folder} could not be written"):
            found.write.format("delta").option(_NOTE, self._note).save(str(self.folder))

    @property
    def _note(self) -> str:
        return f"accepted rows of the backfill {self.target.folder}"

    def _is_written(self) -> bool:
        """Whether the table is there; raise PipelineError if it is another one."""
        if not self.folder.has(JOURNALS["delta"]):
            return False
        quoted = str(self.folder).replace("`", "``")
        history = self.spark.sql(f"DESCRIBE HISTORY delta.`{quoted}`")
        notes = {row[_NOTE] for row in history.select(_NOTE).collect()}
        if self._note not in notes:
            raise PipelineError(
                f"{self.folder} is another table: give another URI for the accepted rows",
                exit_code=CONTRADICTION,
            )
        return True
