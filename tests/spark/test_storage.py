"""Folders on any file system that Hadoop knows: what is there, and small files as a whole."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.storage import StorageFolder
from tests.spark.lake import lake

pytestmark = pytest.mark.spark


@pytest.fixture(params=["path", "lake"])
def folder(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> StorageFolder:
    place = tmp_path if request.param == "path" else lake(spark, tmp_path)
    return StorageFolder.of(spark, place)


def test_a_file_is_there_as_a_whole_once_it_is_written(folder: StorageFolder) -> None:
    file = folder / "new" / "a [b]*.json"
    assert not file.exists()
    file.write_text("zwölf\n")
    assert file.exists()
    assert file.read_text() == "zwölf\n"
    (found,) = (folder / "new").files("*")
    assert (found.name, found.size_bytes) == ("a [b]*.json", len("zwölf\n".encode()))


def test_files_are_found_by_name_in_their_order_whatever_the_folder_is_called(
    folder: StorageFolder,
) -> None:
    odd = folder / "{a}[0-9]*"
    for number in (10, 2, 1):
        (odd / "log" / f"{number:03}.json").write_text("")
    names = [each.name for each in (odd / "log").files("0*.json")]
    assert names == ["001.json", "002.json", "010.json"]
    assert odd.has("log/[0-9]*")
    assert odd.has("log")
    assert not odd.has("log/*.txt")
    assert not odd.has("none/*")
    odd.delete()
    assert not odd.exists()
    odd.delete()


def test_a_relative_path_becomes_absolute(spark: SparkSession) -> None:
    assert str(StorageFolder.of(spark, "tables")) == f"file:{Path.cwd()}/tables"


def test_a_file_system_that_is_not_there_is_a_question_of_usage(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match=r"nowhere://x/y cannot be used .*hadoop") as told:
        StorageFolder.of(spark, "nowhere://x/y")
    assert told.value.exit_code == USAGE
