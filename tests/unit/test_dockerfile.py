"""The Dockerfile and what stands beside it agree, as far as can be told without building it."""

import re
from pathlib import Path

import pytest

from tools.image.dockerfile import instructions, sources

ROOT = Path(__file__).parents[2]
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
    templates = (ROOT / "deploy" / "helm" / "ringfence" / "templates").rglob("*")
    chart = "\n".join(path.read_text("utf-8") for path in templates if path.is_file())
    (user,) = set(re.findall(r"runAsUser: (\d+)", chart))
    assert given("USER") == [f"{user}:{user}"]
