"""The vocabulary check finds a class name with two meanings and a word that the project avoids."""

from pathlib import Path

import pytest

from tools.vocabulary import SHARED, banned_words, shared_names


def written(root: Path, **files: str) -> list[Path]:
    """Files of these folders with this content, named by their folder."""
    paths = []
    for folder, text in files.items():
        path = root / folder / "module.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        paths.append(path)
    return paths


def test_a_class_name_with_two_meanings_is_found(tmp_path: Path) -> None:
    files = written(tmp_path, state="class Plan: ...\n", api="\nclass Plan: ...\n")
    assert list(shared_names(tmp_path, files)) == [
        "state/module.py:1: class Plan is also defined in api/module.py:2"
    ]


def test_names_outside_the_product_and_names_that_are_explained_are_no_violation(
    tmp_path: Path,
) -> None:
    shared = f"class {next(iter(SHARED))}: ...\n"
    files = written(
        tmp_path, tools="class Plan: ...\n", state="class Plan: ...\n" + shared, api=shared
    )
    assert not list(shared_names(tmp_path, files))


@pytest.mark.parametrize(
    "text", ['"""What it was told."""\n', "# Made anew.\n", 'raise ValueError("of ours")\n']
)
def test_a_banned_word_is_found_in_prose(tmp_path: Path, text: str) -> None:
    (found,) = banned_words(tmp_path, written(tmp_path, service=text))
    assert found.startswith("service/module.py:1: write ")


def test_the_strings_of_tests_are_data_and_their_remarks_are_prose(tmp_path: Path) -> None:
    text = 'TEXT = "told"\n# Made anew.\n'
    (found,) = banned_words(tmp_path, written(tmp_path, tests=text))
    assert found.startswith("tests/module.py:2: write ")


def test_names_in_code_are_no_prose(tmp_path: Path) -> None:
    assert not list(banned_words(tmp_path, written(tmp_path, service="told = 1\n")))


def test_no_more_than_ten_names_are_shared() -> None:
    assert len(SHARED) <= 10
