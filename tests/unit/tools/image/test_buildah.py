"""Containers share the files of their image where the file system can do that."""

from pathlib import Path

import pytest

from tools.image.buildah import Buildah


@pytest.mark.parametrize(
    ("can", "driver"),
    [
        ("true", ("overlay", "--storage-opt", "overlay.skip_mount_home=true")),
        ("false", ("vfs",)),
    ],
)
def test_the_storage_is_overlay_where_that_can_be_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: str, driver: tuple[str, ...]
) -> None:
    program = tmp_path / "buildah"
    program.write_text(f'#!/bin/sh\ncase "$*" in *overlay*) {can} ;; esac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command = Buildah(tmp_path / "image").command("rm", "one")
    assert command == [
        *(str(program), "--root", str(tmp_path / "image/images")),
        *("--runroot", str(tmp_path / "image/run"), "--storage-driver", *driver, "rm", "one"),
    ]
