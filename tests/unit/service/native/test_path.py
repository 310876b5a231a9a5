"""Which fast path a process runs, and what it says where that is not the one wanted."""

import pytest

from service.native import extension, path
from service.native.extension import Loaded
from service.native.path import chosen
from tests.support.native import needs_native


def test_without_the_extension_the_path_in_python_runs_and_tells_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(path, "loaded", lambda: Loaded(None, "the extension is not built"))
    found = chosen("native")
    assert (found.name, found.fault) == ("python", "the extension is not built")
    assert found.makers is None


@needs_native
def test_an_extension_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(extension, "INTERFACE", extension.INTERFACE + 1)
        extension.loaded.cache_clear()
        found = chosen("native")
    extension.loaded.cache_clear()
    assert found.name == "python"
    assert found.fault is not None
    assert "built for another version" in found.fault


@needs_native
def test_the_path_that_is_wanted_runs_without_a_fault() -> None:
    found = [chosen("native"), chosen("python")]
    assert [(each.name, each.fault) for each in found] == [("native", None), ("python", None)]
    assert [each.makers is None for each in found] == [False, True]
