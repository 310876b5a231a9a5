"""A test that tells a secret fails, wherever it tells it, and the failure does not repeat it."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_S
from tools.source_roots import python_path

SECRET = "s" * 40
TESTS = f"""
import io, logging, sys
import pytest
from ringfence_service.config.tokens import entry_of, new_token
from ringfence_service.credentials import secret_of

SECRET = {SECRET!r}

@pytest.fixture
def logged():
    return io.StringIO()

def test_that_is_quiet(): secret_of(SECRET)
def test_that_prints(): print(secret_of(SECRET))
def test_that_prints_aside(): sys.stderr.write(f"Bearer {{secret_of(SECRET)}}")
def test_that_logs(): logging.getLogger().warning(secret_of(SECRET))
def test_that_logs_ours(logged): entry_of("ada", "admin", SECRET); logged.write(SECRET)
def test_that_prints_what_it_made(): print(new_token())
def test_whose_process_logs(tmp_path):
    (tmp_path / "peer").write_text("q" * 40)
    (tmp_path / "a.toml").write_text(f'peer_token_file = "{{tmp_path}}/peer"')
    (tmp_path / "0.log").write_text("q" * 40)
"""


def test_a_leaked_secret_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_leaking.py").write_text(TESTS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rE",
        "--show-capture=no",
        "-p",
        "tests.support.leaks",
    ]
    environ = {**os.environ, "PYTHONPATH": python_path(Path(__file__).parents[2])}
    ran = subprocess.run(
        words,
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    failed = set(re.findall(r"^ERROR test_leaking\.py::(\w+) - a secret", ran.stdout, re.MULTILINE))
    assert failed == set(re.findall(r"def (test_\w+)", TESTS)) - {"test_that_is_quiet"}, ran.stdout
    assert SECRET not in ran.stdout + ran.stderr
