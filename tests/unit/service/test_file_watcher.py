"""A file that is read again when it has changed."""

from pathlib import Path

import pytest
import structlog

from ringfence_service.file_watcher import WatchedFile
from tests.api.fake_service import Clock


def number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("it is no number") from None


def test_what_is_new_is_seen_within_a_second(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "file"
    path.write_text("1")
    watched = WatchedFile(str(path), number, clock)
    path.write_text("22")
    assert watched.value() == 1
    clock.now_s += 1
    assert watched.value() == 22


@pytest.mark.parametrize("change", ["x", "\udcff", None])
def test_a_file_that_cannot_be_read_keeps_the_previous_value_and_is_logged_once(
    tmp_path: Path, change: str | None
) -> None:
    clock, path = Clock(), tmp_path / "file"
    path.write_text("1")
    watched = WatchedFile(str(path), number, clock)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change.encode("utf-8", "surrogateescape"))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            clock.now_s += 1
            assert watched.value() == 1
            assert watched.is_refused()
    assert [line["event"] for line in logs] == ["file_refused"]
    path.write_text("33")
    clock.now_s += 1
    assert not watched.is_refused()
    assert watched.value() == 33


def test_a_file_that_is_not_there_at_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        WatchedFile(str(tmp_path / "file"), number, Clock())
