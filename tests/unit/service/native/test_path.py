"""Which fast path a process runs, and what it says where that is not the one wanted."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ringfence_service.clock import product_version
from ringfence_service.native import extension, path
from ringfence_service.native.extension import INTERFACE, VERIFIED, Loaded
from ringfence_service.native.path import chosen
from tests.support.native import needs_native
from tests.support.repository import CHECKOUT


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


@pytest.mark.parametrize(
    "version", ["2.16.0", "2.16.10", "2.16.2", "2.16.1.post1", "2.17.0", "3.0"]
)
def test_no_handle_of_a_version_that_was_not_verified_is_read(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension, "version_of", lambda _name: version)
    extension.loaded.cache_clear()
    found, module = chosen("native"), extension.loaded().module
    extension.loaded.cache_clear()
    assert (found.name, found.makers, module) == ("python", None, None)
    assert f"confluent-kafka {version} is not among the verified versions" in str(found.fault)


def test_the_version_that_the_lock_file_names_is_verified() -> None:
    named = (CHECKOUT / "requirements/service.in").read_text().split()
    assert {f"confluent-kafka=={version}" for version in VERIFIED} & set(named)


@needs_native
def test_the_path_that_is_wanted_runs_without_a_fault() -> None:
    found = [chosen("native"), chosen("python")]
    assert [(each.name, each.fault) for each in found] == [("native", None), ("python", None)]
    assert [each.makers is None for each in found] == [False, True]


@needs_native
def test_a_wheel_of_the_extension_serves_every_python_from_3_11_on(tmp_path: Path) -> None:
    source = shutil.copytree(CHECKOUT / "native", tmp_path / "native")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*command, str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"ringfence_native-{product_version()}-cp311-abi3-")
    with zipfile.ZipFile(wheel) as files:
        (built,) = [name for name in files.namelist() if "/" not in name]
        files.extract(built, tmp_path)
    program = (
        "import ringfence_native; print(ringfence_native.__file__, ringfence_native.INTERFACE)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(tmp_path / built), str(INTERFACE)]
