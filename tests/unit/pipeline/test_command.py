"""The command line of the Spark jobs, as far as it goes without Spark."""

from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ringfence_pipeline import jars
from ringfence_pipeline.command import app, cluster_of
from ringfence_pipeline.errors import USAGE, PipelineError
from ringfence_pipeline.options import read_properties


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


def test_tables_know_the_cluster_from_the_file_of_the_service(tmp_path: Path) -> None:
    file = tmp_path / "ringfence.toml"
    file.write_text(
        '[kafka]\n"bootstrap.servers" = "b:1"\n"security.protocol" = "SSL"\n'
        '[[routes]]\ninputs = ["orders"]\n'
    )
    given = {"client.id": "x"}
    assert cluster_of(file, "", given) == ("b:1", {"security.protocol": "SSL", "client.id": "x"})
    assert cluster_of(file, "c:2", {})[0] == "c:2"
    assert cluster_of(None, "c:2", given) == ("c:2", given)
    with pytest.raises(PipelineError, match="no broker is named") as told:
        cluster_of(None, "", {})
    assert told.value.exit_code == USAGE


def test_jars_are_printed_as_spark_submit_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jar").write_bytes(b"a")
    (tmp_path / "b.jar").write_bytes(b"b")
    sums = tmp_path / "sums"
    sums.write_text(
        "".join(f"{sha256(n.encode()).hexdigest()}  {n}.jar\n" for n in "ab"), encoding="ascii"
    )
    monkeypatch.setattr(jars, "_SUMS", sums)
    shown = CliRunner().invoke(app, ["jars", "--jars", str(tmp_path)])
    assert shown.output == f"{tmp_path}/a.jar,{tmp_path}/b.jar\n"
