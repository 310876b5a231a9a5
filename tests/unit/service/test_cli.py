"""The command line: exit codes, one sentence for an error, and a quick --help."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.cli import main
from service.tokens import parse
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
    for command in ("serve", "bridge", "adopt", "check", "demo", "broker", "pipeline"):
        assert f"  {command} " in told


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


def test_check_of_a_file_for_a_bridge_asks_for_no_routes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text('[bridge]\ntopic = ["a"]\n[bridge.target]\n"acks" = 1\n', encoding="utf-8")
    assert run(monkeypatch, "check", "--config", str(path)) == 1
    told = capsys.readouterr().out
    assert told.startswith("5 problems:\n")
    for words in ("bridge.topic is not", "bridge.topics is missing", '"acks" is refused'):
        assert words in told
    assert "routes" not in told
    path.write_text(FAULTY + '[bridge]\ntopics = ["a"]\n', encoding="utf-8")
    assert run(monkeypatch, "check", "--config", str(path)) == 1
    assert capsys.readouterr().out.startswith("6 problems:\n")


def test_a_bridge_with_a_faulty_configuration_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faulty: Path
) -> None:
    assert run(monkeypatch, "bridge", "--config", str(faulty)) == 2
    assert "bridge.topics is missing" in capsys.readouterr().err


def test_serve_with_a_faulty_configuration_ends_with_2_and_sentences_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], faulty: Path
) -> None:
    assert run(monkeypatch, "serve", "--config", str(faulty)) == 2
    printed = capsys.readouterr()
    assert not printed.out
    lines = printed.err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("ringfence: ") and line.endswith(".") for line in lines)


@pytest.mark.parametrize("command", ["serve", "bridge", "check", "adopt", "try"])
def test_a_missing_file_is_a_usage_error_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    more = {"adopt": ["--from-topic", "orders"], "try": ["orders"]}.get(command, [])
    assert run(monkeypatch, command, *more, "--config", "/nowhere/ringfence.toml") == 2
    told = capsys.readouterr().err
    assert told == (
        "ringfence: /nowhere/ringfence.toml cannot be read: No such file or directory; "
        "name a readable file.\n"
    )
    assert run(monkeypatch, command, *more) == 2


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--from-topic"),
        (("--from-topic", "live", "--from-file", "FILE"), "--from-topic"),
        (("--from-topic", "live", "--since", "yesterday"), "7d"),
        (("--from-file", "FILE"), "--address"),
    ],
)
def test_adopt_says_what_it_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    config = tmp_path / "good.toml"
    config.write_text('[kafka]\n"bootstrap.servers" = "b:9092"\n[[routes]]\ninputs = ["in"]\n')
    given = [str(config) if each == "FILE" else each for each in arguments]
    assert run(monkeypatch, "adopt", "--config", str(config), *given) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "bridge"])
def test_who_is_told_to_end_while_it_reads_its_configuration_ends_with_0(
    command: str, tmp_path: Path
) -> None:
    unwritten = tmp_path / "ringfence.toml"
    os.mkfifo(unwritten)
    with (
        subprocess.Popen(
            [sys.executable, "-m", "service.cli", command, "--config", str(unwritten)],
            cwd=Path(__file__).parents[3],
        ) as process,
        unwritten.open("w"),
    ):  # waits for the reader
        time.sleep(0.5)  # it has opened the file; by now it reads, which a signal interrupts
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_token_is_printed_once_with_its_line_for_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ringfence", "token", "ada", "--roles", "operator"])
    with pytest.raises(SystemExit, match="0"):
        main()
    token, line = capsys.readouterr().out.splitlines()
    found = parse(line).find(token)
    assert found is not None
    assert (found.name, *found.roles) == ("ada", "operator")


def test_a_token_for_a_role_that_there_is_not_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ringfence", "token", "ada", "--roles", "root"])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr()
    assert "the roles are unknown; allowed is viewer" in told.err
    assert told.out == ""
