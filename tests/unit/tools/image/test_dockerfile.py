"""An image is built again when something that is copied into it has changed, and only then."""

from pathlib import Path

import pytest

from tools.image.dockerfile import digest, sources


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    for name in ("code/one.py", "lock.txt", "elsewhere.txt"):
        (tmp_path / name).write_text(name)
    found = tmp_path / "Dockerfile"
    found.write_text("FROM base AS build\nCOPY lock.txt code \\\n  /to\nCOPY --from=build /a /b\n")
    return found


def test_sources_are_what_is_copied_from_the_checkout(file: Path) -> None:
    assert sources(file) == ["lock.txt", "code"]


@pytest.mark.parametrize("changed", ["Dockerfile", "lock.txt", "code/one.py", "code/new.py"])
def test_a_change_of_what_goes_in_is_another_image(file: Path, changed: str) -> None:
    before = digest(file)
    with (file.parent / changed).open("a") as stream:
        stream.write("# more\n")
    assert digest(file) != before


@pytest.mark.parametrize("changed", ["elsewhere.txt", "code/__pycache__/one.pyc"])
def test_a_change_of_anything_else_is_the_same_image(file: Path, changed: str) -> None:
    before = digest(file)
    (file.parent / changed).parent.mkdir(exist_ok=True)
    (file.parent / changed).write_text("changed")
    assert digest(file) == before
