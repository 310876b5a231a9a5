"""The command line of the Spark jobs, as far as it goes without Spark."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.command import app, read_properties
from pipeline.errors import USAGE, PipelineError


def test_properties_are_lines_of_name_and_value(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text('# who\n\nsecurity.protocol = SASL_SSL\n!x\nsasl.jaas.config=a user="b=c";\n')
    assert read_properties(file) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'a user="b=c";',
    }


@pytest.mark.parametrize("line", ["security.protocol", "= SASL_SSL"])
def test_a_line_that_is_no_property_is_refused_by_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# who\n{line}\n")
    with pytest.raises(PipelineError, match="line 2") as told:
        read_properties(file)
    assert told.value.exit_code == USAGE


def test_help_names_the_command() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "tables" in shown.output
