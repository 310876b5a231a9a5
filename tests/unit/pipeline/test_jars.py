"""A folder of jars that was given is checked, and never filled."""

from pathlib import Path

import pytest

from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.jars import connector_jars


def test_a_folder_without_the_jars_is_refused_and_left_empty(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"has no commons-pool2-.*\.jar") as told:
        connector_jars(tmp_path)
    assert told.value.exit_code == USAGE
    assert not list(tmp_path.iterdir())


def test_a_jar_with_other_contents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commons-pool2-2.12.0.jar").write_bytes(b"not the one")
    with pytest.raises(PipelineError, match="checksum"):
        connector_jars(tmp_path)
