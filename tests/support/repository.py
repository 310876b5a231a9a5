"""A Git repository with one commit, for tests of programs that read one."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).parents[2]
COMMITTED_S: Final = 1_700_000_000
"""When its commit was made, 2023-11-14T22:13:20Z."""
_ANYBODY: Final = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")


def git(folder: Path, *arguments: str) -> str:
    """Run git without the settings of the user and return its output."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_DATE": f"{COMMITTED_S} +0000",
        "GIT_COMMITTER_DATE": f"{COMMITTED_S} +0000",
    }
    done = subprocess.run(
        ["git", *_ANYBODY, *arguments],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def committed(folder: Path) -> Path:
    """Commit all files of a folder to a new repository in it."""
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "All files")
    return folder


def checkout_of(texts: Mapping[str, str], folder: Path) -> Path:
    """Make a repository of some files, given by their paths."""
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return committed(folder)


def copy_of_checkout(folder: Path) -> Path:
    """Make a repository of this checkout as it is now, with changes that are not committed."""
    listed = git(CHECKOUT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    return committed(folder)
