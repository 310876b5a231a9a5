"""Storage folder: a folder on any file system that Spark can use, by URI or path.

Tables and checkpoints are written by Spark. This is for the rest: whether they exist, and small
files beside them. It runs on the driver, through Hadoop's file systems with the session's Hadoop
settings, so it finds what Spark finds. A path without a scheme is on the default file system, which
without a cluster is the local disk.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # it ships none
from pyspark.sql import SparkSession

from ringfence_pipeline.errors import USAGE, PipelineError

T = TypeVar("T")

_ENCODING: Final = "UTF-8"


class StoredFile(NamedTuple):
    """A file of a folder."""

    name: str
    size_bytes: int
    changed_ms: int


class StorageFolder:
    """A folder that need not exist. Every method raises PipelineError if its storage fails."""

    def __init__(self, spark: SparkSession, path: Any) -> None:  # noqa: ANN401 - Hadoop's Path
        self._spark = spark
        # PySpark has no public access to Hadoop's file systems.
        self._jvm = cast("Any", spark._jvm)  # noqa: SLF001
        self._path = path

    @classmethod
    def of(cls, spark: SparkSession, place: str | Path) -> Self:
        """Return the folder at a URI or a path; a relative path becomes absolute."""
        jvm = cast("Any", spark._jvm)  # noqa: SLF001 - as above
        hadoop = cast("Any", spark._jsc).hadoopConfiguration()  # noqa: SLF001

        def qualified() -> object:
            path = jvm.org.apache.hadoop.fs.Path(str(place))
            return path.getFileSystem(hadoop).makeQualified(path)

        return cls(spark, _tried(str(place), qualified))

    def __truediv__(self, name: str) -> Self:
        """Return a folder in this folder."""
        return type(self)(self._spark, self._jvm.org.apache.hadoop.fs.Path(self._path, name))

    def __str__(self) -> str:
        """Return its URI, which Spark takes as the path of a table or a checkpoint."""
        return str(self._path.toString())

    @property
    def name(self) -> str:
        """Return the last part of its path."""
        return str(self._path.getName())

    def exists(self) -> bool:
        """Return whether there is such a folder, or file."""
        return bool(self._do(lambda: self._files.exists(self._path)))

    def files(self, pattern: str) -> Sequence[StoredFile]:
        """Return what it contains, by name, if the name matches; `*` stands for anything."""
        found = self._do(lambda: self._files.listStatus(self._path)) if self.exists() else ()
        files = (
            StoredFile(str(each.getPath().getName()), each.getLen(), each.getModificationTime())
            for each in found
        )
        return sorted(file for file in files if fnmatchcase(file.name, pattern))

    def has(self, pattern: str) -> bool:
        """Return whether any file matches: a pattern of names, in this or a named folder of it."""
        folder, _, names = pattern.rpartition("/")
        return bool((self / folder if folder else self).files(names))

    def read_text(self) -> str:
        """Return the text of the file with its name."""

        def read() -> str:
            stream = self._files.open(self._path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, _ENCODING))
            finally:
                stream.close()

        return self._do(read)

    def write_text(self, text: str) -> None:
        """Write a file with its name, as a whole or not at all; another with that name is kept."""
        draft = self._jvm.org.apache.hadoop.fs.Path(self._path.getParent(), f".{self.name}.new")

        def write() -> None:
            stream = self._files.create(draft, True)  # noqa: FBT003 - overwrites a former draft
            try:
                stream.write(text.encode())
            finally:
                stream.close()
            # Not every file system refuses a name that is taken in the same way.
            if self._files.exists(self._path):
                self._files.delete(draft, False)  # noqa: FBT003 - it is a file
            else:
                self._files.rename(draft, self._path)

        self._do(write)

    def delete(self) -> None:
        """Delete the folder with its content, if it exists."""
        self._do(lambda: self._files.delete(self._path, True))  # noqa: FBT003 - its content too

    @property
    def _files(self) -> Any:  # noqa: ANN401 - Hadoop's FileSystem
        hadoop = cast("Any", self._spark._jsc).hadoopConfiguration()  # noqa: SLF001
        return self._path.getFileSystem(hadoop)

    def _do(self, request: Callable[[], T]) -> T:
        return _tried(str(self), request)


def _tried(place: str, request: Callable[[], T]) -> T:
    try:
        return request()
    except Py4JJavaError as error:
        cause = str(error.java_exception)[:500]
        raise PipelineError(
            f"{place} cannot be used ({cause}): check its name, the rights, and that the file "
            "system's jars and settings (spark.hadoop.…) are given",
            exit_code=USAGE,
        ) from error
