"""The Dockerfile agrees with the files beside it, as far as can be checked without a build."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.image.dockerfile import instructions, sources

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "ringfence"
LINES = instructions(ROOT / "Dockerfile")
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def given(word: str) -> list[str]:
    """What stands behind an instruction, wherever it is given."""
    return [line.removeprefix(word).strip() for line in LINES if line.startswith(f"{word} ")]


@pytest.mark.parametrize("source", sources(ROOT / "Dockerfile"))
def test_what_is_copied_is_there_and_is_not_kept_out(source: str) -> None:
    assert (ROOT / source).exists()
    let_in = [line.removeprefix("!") for line in IGNORED if line.startswith("!")]
    assert any(
        Path(source).match(pattern) or source.startswith(f"{pattern}/") for pattern in let_in
    )


def test_every_base_is_an_argument_with_a_version_or_a_stage() -> None:
    bases = {line.split()[0] for line in given("FROM")}
    stages = {line.split(" AS ")[1] for line in given("FROM") if " AS " in line}
    arguments = dict(argument.split("=", 1) for argument in given("ARG"))
    for base in bases - stages:
        pinned = arguments[base.removeprefix("${").removesuffix("}")]
        assert re.search(r":\d+\.\d+\.\d+-|@sha256:", pinned), base


def test_what_is_installed_is_locked() -> None:
    steps = [step for line in given("RUN") for step in line.split("&&") if " install --" in step]
    installs = [step for step in steps if "pip" in step]
    assert len(installs) > 3
    for step in installs:
        assert "--require-hashes" in step or "--no-index" in step, step


def test_it_runs_as_who_the_chart_says() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["podSecurityContext"]
    assert given("USER") == [f"{values['runAsUser']}:{values['runAsGroup']}"]


def test_image_package_and_chart_name_the_license_that_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (file,) = project["license-files"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["annotations"]["artifacthub.io/license"] == project["license"] == "Apache-2.0"
    assert any('licenses="Apache-2.0"' in line for line in given("LABEL"))
    assert "Apache License\n" in (ROOT / file).read_text("utf-8")
    assert file in sources(ROOT / "Dockerfile")
