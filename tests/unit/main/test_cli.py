"""The command line: exit codes, one sentence for an error, and a quick --help."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from ringfence_main.cli import main
from ringfence_main.findings import CheckFinding
from ringfence_service.clock import product_version
from ringfence_service.config.tokens import parse
from ringfence_service.credentials import token_of
from ringfence_service.errors import ExitCode, ExitError
from tests.support.helpers import some
from tests.support.waiting import LIMIT_S, eventually
from tests.unit.service.cli.scripted import Reply, scripted
from tests.unit.service.supervisor.scene import state_of

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


class Run(Protocol):
    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]: ...


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line as a shell would; what it prints on either stream."""

    def ran(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["ringfence", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert int(ended.value.code or 0) == code
        told = capsys.readouterr()
        return told.out, told.err

    return ran


def test_a_service_that_fails_leaves_at_once_with_the_code_of_its_failure(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_config: object) -> int:
        raise ExitError(ExitCode.CONTRADICTION, "the group is at 3")

    left: list[int] = []

    def leave(code: int) -> None:
        left.append(code)
        raise SystemExit(code)  # a test goes on

    monkeypatch.setattr("ringfence_main.serve.serve", fails)
    monkeypatch.setattr("ringfence_main.cli.leave", leave)
    path = tmp_path / "ringfence.toml"
    path.write_text('[kafka]\n"bootstrap.servers" = "127.0.0.1:1"\n[[routes]]\ninputs = ["a"]\n')
    _, err = run("serve", "--config", str(path), code=ExitCode.CONTRADICTION)
    assert (left, err) == ([ExitCode.CONTRADICTION], "ringfence: the group is at 3\n")


def test_the_version_is_that_of_the_project(run: Run) -> None:
    assert run("--version")[0] == f"ringfence {product_version()}\n"


def test_check_prints_every_problem_with_its_fix_and_ends_with_1(run: Run, faulty: Path) -> None:
    told, _ = run("check", "--config", str(faulty), code=1)
    assert told.startswith("4 problems:\n")
    for name in ("batch_wait", "enable.auto.commit", "a.#.z", "bootstrap.servers"):
        assert name in told
    assert told.count("fix: ") == 4


def test_check_of_a_file_for_a_bridge_asks_for_no_routes(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text('[bridge]\ntopic = ["a"]\n[bridge.target]\n"acks" = 1\n', encoding="utf-8")
    told, _ = run("check", "--config", str(path), code=1)
    assert told.startswith("5 problems:\n")
    for words in ("bridge.topic is not", "bridge.topics is missing", '"acks" is refused'):
        assert words in told
    assert "routes" not in told
    path.write_text(FAULTY + '[bridge]\ntopics = ["a"]\n', encoding="utf-8")
    assert run("check", "--config", str(path), code=1)[0].startswith("6 problems:\n")


def test_check_warns_of_secrets_that_every_user_can_read(run: Run, tmp_path: Path) -> None:
    files = {key: tmp_path / key for key in ("peer_token_file", "session_key_file")}
    lines = [f'{key} = "{path}"\n' for key, path in files.items()]
    for path in files.values():
        path.write_text("s" * 40)
        path.chmod(0o604)
    files["session_key_file"].chmod(0o640)
    config = tmp_path / "ringfence.toml"
    config.write_text(f'[[routes]]\ninputs = ["a"]\n[api]\n{"".join(lines)}')
    told, warned = run("check", "--config", str(config), code=1)
    assert told.startswith("2 problems:\n")
    assert "api.session_key_file is set, and api.auth is" in told
    (line,) = warned.splitlines()
    assert line.startswith(f"warning: {files['peer_token_file']} of api.peer_token_file can be")


def test_check_warns_of_an_address_that_does_not_fit_into_one_process(
    run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "ringfence.toml"
    config.write_text(
        '[service]\nworkers = 2\nfast_path = "python"\n[[routes]]\ninputs = ["a"]\n'
        '[addresses."orders"]\nid_cache_size = 1_000_000\n'
        '[addresses."large.#"]\nid_cache_size = 400_000\n'
        '[addresses."window"]\nstrategy = "window"\nwindow_size = 300_000\n'
        '[addresses."numbers"]\nstrategy = "sequence"\npublishers_max = 10_000_000\n'
        '[addresses."#"]\nid_cache_size = 100_000\n'
    )
    warned = run("check", "--config", str(config), code=1)[1].splitlines()
    assert [line.split(". service", 1)[0] for line in warned] == [
        f"warning: {size}: some {mib} MiB when it is full"
        for size, mib in (
            ('addresses."orders".id_cache_size is 1,000,000', 216),
            ('addresses."window".window_size is 300,000', 129),
        )
    ]
    assert warned[0].endswith("; set it to 580 or more")


def test_a_bridge_with_a_faulty_configuration_ends_with_2(run: Run, faulty: Path) -> None:
    assert "bridge.topics is missing" in run("bridge", "--config", str(faulty), code=2)[1]


def test_serve_with_a_faulty_configuration_ends_with_2_and_sentences_on_stderr(
    run: Run, faulty: Path
) -> None:
    out, err = run("serve", "--config", str(faulty), code=2)
    assert not out
    lines = err.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("ringfence: ") and line.endswith(".") for line in lines)


@pytest.mark.parametrize("command", ["serve", "bridge", "check", "adopt", "try"])
def test_a_missing_file_is_a_usage_error_in_one_sentence(run: Run, command: str) -> None:
    more = {"adopt": ["--from-topic", "orders"], "try": ["orders"]}.get(command, [])
    _, told = run(command, *more, "--config", "/nowhere/ringfence.toml", code=2)
    assert told == (
        "ringfence: /nowhere/ringfence.toml cannot be read: No such file or directory; "
        "name a readable file.\n"
    )
    run(command, *more, code=2)


def test_check_reports_a_syntax_error_as_a_problem_with_its_location(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "ringfence.toml"
    path.write_text("[kafka\n", encoding="utf-8")
    assert "line 1, column 7" in run("check", "--config", str(path), code=1)[0]


def test_pipeline_hands_its_arguments_to_the_jobs(run: Run) -> None:
    told, _ = run("pipeline", "--help")
    assert "ringfence pipeline" in told
    assert "tables" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--from-topic"),
        (("--from-topic", "live", "--from-file", "FILE"), "--from-topic"),
        (("--from-topic", "live", "--since", "yesterday"), "7d"),
        (("--from-file", "FILE"), "--address"),
        (
            ("--from-file", "FILE", "--address", "a", "--token-file", "FILE"),
            "its first line must be only the token",
        ),
        (
            ("--from-file", "FILE", "--address", "a", "--url", "http://u:p@a"),
            "contains a user or a password",
        ),
    ],
)
def test_adopt_says_what_it_needs(
    tmp_path: Path,
    run: Run,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    config = tmp_path / "good.toml"
    text = '# a file\n[kafka]\n"bootstrap.servers" = "b:9092"\n[[routes]]\ninputs = ["in"]\n'
    config.write_text(text)
    given = [str(config) if each == "FILE" else each for each in arguments]
    assert words in run("adopt", "--config", str(config), *given, code=2)[1]


def test_adopt_shows_an_address_with_no_character_that_acts(tmp_path: Path, run: Run) -> None:
    config, lines = tmp_path / "good.toml", tmp_path / "ids.ndjson"
    config.write_text('[kafka]\n"bootstrap.servers" = "b:9092"\n[[routes]]\ninputs = ["in"]\n')
    lines.write_text('{"id": "1"}\n')
    words = ["adopt", "--config", str(config), "--from-file", str(lines)]
    with scripted(Reply(200, {"ids": 1, "new": 1})) as script:
        out, _ = run(*words, "--address", "a\x1b[2J\r\x9b\u202e", "--url", script.url)
    assert out.startswith(r"a\x1b[2J\x0d\x9b\u202e: 1 ids read")


@pytest.mark.parametrize("command", ["serve", "bridge"])
def test_a_command_that_is_stopped_while_it_reads_its_configuration_exits_with_0(
    command: str, tmp_path: Path
) -> None:
    unwritten = tmp_path / "ringfence.toml"
    os.mkfifo(unwritten)
    with (
        subprocess.Popen(
            [sys.executable, "-m", "ringfence_main.cli", command, "--config", str(unwritten)],
            cwd=Path(__file__).parents[4],
        ) as process,
        unwritten.open("w"),
    ):  # waits for the reader
        proc = Path(f"/proc/{process.pid}")  # it has opened the file, and reads when it sleeps
        eventually(lambda: state_of(proc) == "S")
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


LOADER_THAT_CATCHES_EVERYTHING = """
import signal
import ringfence_service.{module}

def load(*_arguments):
    try:
        signal.raise_signal(signal.SIGTERM)
    except BaseException as error:
        raise ValueError("as pydantic does") from error

ringfence_service.{module}.load = load
from ringfence_main.cli import main
main()
"""


@pytest.mark.parametrize(
    ("command", "module"), [("serve", "config.load"), ("bridge", "bridge.config")]
)
def test_a_library_that_catches_every_exception_does_not_change_the_exit_code_of_sigterm(
    command: str, module: str
) -> None:
    program = LOADER_THAT_CATCHES_EVERYTHING.format(module=module)
    words = [sys.executable, "-c", program, command, "--config", "any.toml"]
    done = subprocess.run(words, cwd=Path(__file__).parents[4], check=False)
    assert done.returncode == 0


def test_a_token_is_printed_alone_and_its_line_beside_it_or_into_the_file(
    run: Run, tmp_path: Path
) -> None:
    printed, beside = run("token", "ada", "--roles", "operator")
    found = some(parse(beside.splitlines()[-1]).find(token_of(printed)))
    assert (found.name, *found.roles) == ("ada", "operator")
    file = tmp_path / "tokens"
    file.write_text(found.line)  # without an end of line, as some editors leave it
    printed, beside = run("token", "bob", "--add-to", str(file))
    assert beside == ""
    tokens = parse(file.read_text())
    assert (some(tokens.find(printed.strip())).name, len(tokens)) == ("bob", 2)
    assert "cannot be written" in run("token", "bob", "--add-to", "/nowhere/tokens", code=2)[1]


def test_a_token_for_a_role_that_there_is_not_is_a_usage_error(run: Run) -> None:
    out, err = run("token", "ada", "--roles", "root", code=2)
    assert "the roles are unknown; use viewer" in err
    assert out == ""


def test_pipeline_without_spark_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [each for each in sys.modules if each.partition(".")[0] == "ringfence_pipeline"]:
        monkeypatch.delitem(sys.modules, name)
    _, told = run("pipeline", "tables", "--target", "tables", code=2)
    assert 'pip install "ringfence-server[spark]"' in told


@pytest.mark.parametrize(
    ("arguments", "sample"),
    [
        ((), None),
        (("--sample",), 1_000),
        (("--sample", "20"), 20),
        (("--sample=20",), 20),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_sample_has_a_default_number(
    run: Run,
    faulty: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    sample: int | None,
    *,
    is_first: bool,
) -> None:
    given = list[object]()

    def findings_of(
        file: Path, sample: int | None, _say: object, *, probes: bool
    ) -> list[CheckFinding]:
        assert not probes
        given[:] = file, sample
        return [CheckFinding([], {}, [], ["orders is right."])]

    monkeypatch.setattr("ringfence_main.findings.findings_of", findings_of)
    config = ("--config", str(faulty))
    out, _ = run("check", *((*arguments, *config) if is_first else (*config, *arguments)))
    assert given == [faulty, sample]
    assert out == f"orders is right.\n{faulty} is good.\n"


def test_a_sample_without_a_message_is_refused(run: Run, faulty: Path) -> None:
    _, err = run("check", "--config", str(faulty), "--sample", "0", code=2)
    assert "--sample" in err
