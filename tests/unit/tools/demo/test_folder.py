"""The demo's folder."""

from pathlib import Path

import pytest

from tools.demo.errors import DemoError
from tools.demo.folder import Left, fresh_folder, is_in_use, leave, read_left

LEFT = Left(
    bootstrap_servers="127.0.0.1:9",
    is_embedded=True,
    input="flights",
    output="flights.unique",
    dead_letter="flights.dlq",
    group_id="demo",
    accepted=1,
    duplicates=2,
)


def test_every_run_starts_from_an_empty_folder(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with fresh_folder(folder):
        (folder / "old").touch()
    with fresh_folder(folder):
        assert not list(folder.iterdir())


def test_two_runs_never_share_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with fresh_folder(folder):
        assert is_in_use(folder)
        with pytest.raises(DemoError, match="another demo"), fresh_folder(folder):
            pass
    assert not is_in_use(folder)


def test_what_a_run_left_can_be_read_later(tmp_path: Path) -> None:
    leave(tmp_path, LEFT)
    assert read_left(tmp_path) == LEFT


def test_without_a_finished_run_the_error_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="make run"):
        read_left(tmp_path)
