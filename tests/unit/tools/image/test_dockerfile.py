"""An image is built again when something that is copied into it has changed, and only then."""

from pathlib import Path

import pytest

from tools.image.dockerfile import digest, sources, without_stages


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


def test_a_stage_that_was_built_is_left_out_and_its_image_stands_where_it_was_named() -> None:
    text = (
        "ARG BASE\n# To build.\nFROM ${BASE} AS build\nRUN make\n"
        "FROM ${BASE} AS service\nCOPY --from=build /a /a\n"
        "FROM build AS build-more\nRUN more\nFROM service AS spark\nCOPY --from=build-more /b /b\n"
    )
    assert without_stages(text, {}) == text
    assert without_stages(text, {"build": "it:1", "service": "it:2"}) == (
        "ARG BASE\n# To build.\n"
        "FROM it:1 AS build-more\nRUN more\nFROM it:2 AS spark\nCOPY --from=build-more /b /b\n"
    )
    assert "COPY --from=it:1 /a /a\n" in without_stages(text, {"build": "it:1"})


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
