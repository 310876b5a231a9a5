"""The command line: exit codes, one sentence for an error, and a quick --help."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import main
from service.version import product_version

FAULTY = """
[kafka]
"enable.auto.commit" = true

[service]
batch_wait = 20

[[routes]]
inputs = ["orders"]
scope = "partition"

[addresses."a.#.z"]
id_cache_size = 5
"""

HEAVY = ("confluent_kafka", "fastapi", "pydantic", "rich", "rocksdict", "uvicorn", "pyspark")


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    path = tmp_path / "ringfence.toml"
    path.write_text(FAULTY, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line as a shell would and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["ringfence", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_help_names_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--help") == 0
    told = capsys.readouterr().out
    for command in ("serve", "check", "demo", "broker", "pipeline"):
        assert f"  {command} " in told


def test_help_loads_nothing_that_only_a_running_command_needs() -> None:
    program = (
        "import sys; sys.argv = ['ringfence', '--help']\n"
        "from service.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print('loaded:', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.endswith("loaded: []\n")


def test_the_version_is_that_of_the_project(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"ringfence {product_version()}\n"


def test_check_prints_every_problem_with_its_mend_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faulty: Path
) -> None:
    assert run(monkeypatch, "check", "--config", str(faulty)) == 1
    told = capsys.readouterr().out
    assert told.startswith("4 problems:\n")
    for name in ("batch_wait", "enable.auto.commit", "a.#.z", "bootstrap.servers"):
        assert name in told
    assert told.count("mend: ") == 4


def test_serve_with_a_faulty_configuration_ends_with_2_and_sentences_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faulty: Path
) -> None:
    assert run(monkeypatch, "serve", "--config", str(faulty)) == 2
    printed = capsys.readouterr()
    assert not printed.out
    lines = printed.err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("ringfence: ") and line.endswith(".") for line in lines)


@pytest.mark.parametrize("command", ["serve", "check"])
def test_a_missing_file_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(monkeypatch, command, "--config", "/nowhere/ringfence.toml") == 2
    assert "does not exist" in capsys.readouterr().err
    assert run(monkeypatch, command) == 2


def test_a_syntax_error_is_told_by_check_as_a_problem_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text("[kafka\n", encoding="utf-8")
    assert run(monkeypatch, "check", "--config", str(path)) == 1
    assert "line 1, column 7" in capsys.readouterr().out


def test_pipeline_hands_its_arguments_to_the_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "pipeline", "--help") == 0
    told = capsys.readouterr().out
    assert "ringfence pipeline" in told
    assert "tables" in told


def test_the_module_runs_as_a_program() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "service.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert ran.stdout == f"ringfence {product_version()}\n"
