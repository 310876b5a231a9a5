"""The folder of an instance: one process at a time, and again after it."""

import os
import stat
import threading
from pathlib import Path

import pytest

from ringfence_state.directory import DirectoryLockedError, StateDirectory
from ringfence_state.model import PartitionId
from ringfence_state.rocksdb_store import RocksStores
from tests.support.waiting import LIMIT_S


def test_a_second_holder_is_refused_with_the_path(tmp_path: Path) -> None:
    held = StateDirectory(tmp_path, "group", "0")
    with pytest.raises(DirectoryLockedError, match=str(held.path)):
        StateDirectory(tmp_path, "group", "0")
    held.release()


def test_it_is_held_while_a_process_has_it_and_asking_makes_no_folder(tmp_path: Path) -> None:
    assert not StateDirectory.is_held(tmp_path, "group", "0")
    assert not list(tmp_path.iterdir())
    held = StateDirectory(tmp_path, "group", "0")
    assert StateDirectory.is_held(tmp_path, "group", "0")
    held.release()
    assert not StateDirectory.is_held(tmp_path, "group", "0")
    StateDirectory(tmp_path, "group", "0").release()  # asking has not taken it


def test_no_other_user_gets_into_it_whatever_the_umask_and_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "group" / "0"
    before = os.umask(0)
    try:
        StateDirectory(tmp_path, "group", "0").release()
        assert stat.S_IMODE((path / "lock").stat().st_mode) == 0o600
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        path.chmod(0o755)
        StateDirectory(tmp_path, "group", "0").release()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        RocksStores(path).open(PartitionId("orders", 0)).close()
        assert stat.S_IMODE((path / "orders-0").stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_it_is_closed_to_others_from_the_moment_that_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # what comes later changes nothing
    before = os.umask(0)
    try:
        directory = StateDirectory(tmp_path, "group", "0")
    finally:
        os.umask(before)
    directory.release()
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700


def test_after_a_release_the_next_gets_it(tmp_path: Path) -> None:
    StateDirectory(tmp_path, "group", "0").release()
    StateDirectory(tmp_path, "group", "0").release()


def test_other_instances_and_groups_are_not_in_the_way(tmp_path: Path) -> None:
    held = [StateDirectory(tmp_path, *place) for place in [("g", "0"), ("g", "1"), ("h", "0")]]
    assert len({directory.path for directory in held}) == 3
    for directory in held:
        directory.release()


def test_a_patient_caller_gets_the_directory_when_the_other_releases_it(tmp_path: Path) -> None:
    held = StateDirectory(tmp_path, "group", "0")
    threading.Timer(0.1, held.release).start()
    StateDirectory(tmp_path, "group", "0", patience_s=LIMIT_S).release()
