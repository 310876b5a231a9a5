"""The folder of an instance: one process at a time, and again after it."""

import threading
from pathlib import Path

import pytest

from state.directory import Directory, DirectoryHeldError
from tests.waiting import LIMIT_S


def test_a_second_holder_is_refused_and_told_where(tmp_path: Path) -> None:
    held = Directory(tmp_path, "group", "0")
    with pytest.raises(DirectoryHeldError, match=str(held.path)):
        Directory(tmp_path, "group", "0")
    held.release()


def test_after_a_release_the_next_gets_it(tmp_path: Path) -> None:
    Directory(tmp_path, "group", "0").release()
    Directory(tmp_path, "group", "0").release()


def test_other_instances_and_groups_are_not_in_the_way(tmp_path: Path) -> None:
    held = [Directory(tmp_path, *place) for place in [("g", "0"), ("g", "1"), ("h", "0")]]
    assert len({directory.path for directory in held}) == 3
    for directory in held:
        directory.release()


def test_who_is_patient_gets_it_when_the_other_lets_go(tmp_path: Path) -> None:
    held = Directory(tmp_path, "group", "0")
    threading.Timer(0.1, held.release).start()
    Directory(tmp_path, "group", "0", patience_s=LIMIT_S).release()
